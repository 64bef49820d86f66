"""Bars of tokens a second, ours beside the peer's, with the ratio above; runs where matplotlib is, beside the peer."""

import json
import sys

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

WIDTH = 0.38


def main() -> None:
    """Reads {"rows": [...], "peer": name, "to": file} from standard input."""
    asked = json.load(sys.stdin)
    rows = asked["rows"]
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    places = range(len(rows))
    ours = axes.bar([at - WIDTH / 2 for at in places], [row["ours"] for row in rows], WIDTH, label="Laneway")
    axes.bar([at + WIDTH / 2 for at in places], [row["theirs"] for row in rows], WIDTH, label=asked["peer"])
    axes.bar_label(ours, [f"{row['ratio']:.2f} x" for row in rows])
    axes.set_xticks(list(places), [f"{row['requests']} at once" for row in rows])
    axes.set_ylabel("tokens a second")
    axes.margins(y=0.12)
    axes.legend()
    figure.savefig(asked["to"], dpi=150)


if __name__ == "__main__":
    main()
