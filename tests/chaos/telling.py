"""The outcome of a run in lines to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.memory import MIB
from tests.chaos.run import Outcome

SHOWN = 20


def lines(outcome: Outcome) -> Iterator[str]:
    targets: dict[str, Counter[str]] = {}
    for (kind, target), count in sorted(outcome.fallen.items()):
        targets.setdefault(kind, Counter())[target] += count
    yield f"seed {outcome.plan.seed}: {sum(outcome.fallen.values())} faults in {outcome.plan.troubled_s:.0f} s"
    for kind, of in targets.items():
        on = ", ".join(f"{target} {count}" for target, count in sorted(of.items()))
        yield f"  {kind:<14} {sum(of.values()):>3}  {on}"
    yield f"  {'replies':<14} {len(outcome.accepted):>3}  {_counted(_ends(outcome))}"
    resumed = [told for told in outcome.accepted if told.attempt > 1]
    most = max((told.attempt for told in outcome.accepted), default=0)
    yield f"  {'resumed':<14} {len(resumed):>3}  at most {most} attempts"
    streams = [stream for client in outcome.clients for stream in client.streams()]
    again = sum(stream.after is not None for stream in streams)
    yield f"  {'clients':<14} {len(outcome.clients):>3}  {len(streams)} streams, {again} of them resumed"
    answers = Counter(answer for c in outcome.clients for r in c.requests() for answer in r.answers or ("broken",))
    yield f"  {'answers':<14} {sum(answers.values()):>3}  {_counted(answers)}"
    for name, grown in outcome.memory.most().items():
        yield f"  {name:<14} {grown.now // MIB:>3} MiB, {grown.bytes / MIB:+.0f}"
    yield f"  {'violations':<14} {len(outcome.violations):>3}"
    yield from (f"    {violation}"[:2000] for violation in outcome.violations[:SHOWN])


def _ends(outcome: Outcome) -> Counter[str]:
    return Counter(
        told.state if told.state == "finished" else f"{told.state} ({told.reason})" for told in outcome.accepted
    )


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counter.most_common())
