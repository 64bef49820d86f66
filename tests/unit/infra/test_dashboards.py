"""Dashboard and alert rules ask for metrics that exist, by labels that they have."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest
import yaml

from infra.docs import METRICS, README

FOLDER = README.parent / "infra" / "dashboards"
OURS = {name: metric for metrics in METRICS.values() for metric in metrics for name in metric.series}
PROCESS = {"process_start_time_seconds", "process_resident_memory_bytes"}
SCRAPED = {"instance", "job", "le"}


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "laneway.json").read_text())["panels"]
    return found


def queries() -> list[str]:
    return [
        *(rule["expr"] for rule in alerts()),
        *(target["expr"] for panel in panels() for target in panel["targets"]),
    ]


def selected(query: str) -> set[str]:
    """The metrics that a query selects. Raises ValueError for one that Prometheus would refuse."""
    parsed = promql_parser.parse(query.replace("$__rate_interval", "1m"))
    return set(re.findall(r"\b(?:laneway|process)_[a-z0-9_]+", parsed.prettify()))


@pytest.mark.parametrize("query", queries())
def test_a_query_selects_metrics_that_exist_by_their_labels(query: str) -> None:
    names = selected(query)
    assert names and not names - OURS.keys() - PROCESS
    labels = {label for name in names if name in OURS for label in OURS[name].labels}
    grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}
    matched = set(re.findall(r"[{,]\s*([a-z_]+)\s*=", query))
    assert not (grouped | matched) - labels - SCRAPED


def test_a_query_of_a_metric_that_does_not_exist_is_found() -> None:
    assert selected("sum(rate(laneway_nothing_total[5m])) > 1") - OURS.keys() == {"laneway_nothing_total"}
    with pytest.raises(ValueError, match=r"."):
        selected("sum(rate(laneway_ready[5m])")


def test_every_metric_is_shown_on_the_dashboard() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name in selected(target["expr"])}
    missing = [metric.name for of in METRICS.values() for metric in of if not shown & set(metric.series)]
    assert missing == []


def test_every_alert_says_why_its_threshold_is_what_it_is() -> None:
    rules = alerts()
    assert all(rule["annotations"]["why"] and rule["annotations"]["summary"] for rule in rules)
    assert {rule["labels"]["severity"] for rule in rules} == {"page", "warning"}
    assert len({rule["alert"] for rule in rules}) == len(rules)
