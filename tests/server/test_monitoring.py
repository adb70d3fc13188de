"""The Grafana dashboard and the alerts of `monitoring`: every metric and label that they name is one of a server's."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.engine_factory import EngineFactory
from tests.server.server_helpers import LATER, backend, fill

MONITORING = Path(__file__).parents[2] / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana/transom.json").read_text())
ALERTS = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_PROMETHEUS = {"job", "instance", "le"}  # labels that a scrape adds, and the bounds of histograms
FIXED_LABELS = (
    "state",
    "fate",
    "where",
    "part",
    "kind",
    "outcome",
)  # their values are the same for every server
NEVER_FIRES = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] HAVING n > 1000 ALERT"
Values = dict[str, dict[str, set[str]]]  # the values of each label of each metric


@pytest.fixture(scope="module")
def served(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Values:
    """What a server with every kind of query reports."""
    with backend(make_engine, tmp_path_factory.mktemp("monitoring"), slack="0 seconds") as back:
        fill(back)
        back.engine.alerting.webhook("pager", "http://127.0.0.1:9/")  # no group fires, so nothing is sent
        back.engine.register(NEVER_FIRES, "alerting")
        back.push(LATER)
        back.client.get("/api/status")
        text = back.client.get("/metrics").text
    values: Values = defaultdict(lambda: defaultdict(set))
    reference = (MONITORING.parent / "docs/reference/api.md").read_text()
    labels = dict(re.findall(r"^\| `(transom_\w+)` \| ([^|]*) \|", reference, re.MULTILINE))
    for family in text_string_to_metric_families(text):
        if not family.samples:  # it has no value here; `test_routes` compares its labels with those of others
            name = family.name if family.name in labels else f"{family.name}_total"
            values[name].update((label, set()) for label in re.findall(r"`(\w+)`", labels[name]))
        for sample in family.samples:
            for label, value in sample.labels.items():
                values[sample.name][label].add(value)
            values.setdefault(sample.name, defaultdict(set))  # it may have no labels
    return values


def expression_of(text: str) -> Any:
    """PromQL as Prometheus gets it, without Grafana's variables."""
    return promql_parser.parse(text.replace("$__rate_interval", "1m"))


def nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        if (part := getattr(expression, name, None)) is not None:
            yield from nodes(part)
    for part in getattr(expression, "args", ()):
        yield from nodes(part)


def check(text: str, served: Values) -> set[str]:
    """The labels of a query's metrics; each metric, label and fixed value is one that a server reports."""
    labels: set[str] = set(OF_PROMETHEUS)
    expression = expression_of(text)
    for node in nodes(expression):
        if isinstance(node, promql_parser.VectorSelector) and node.name != "up":
            assert node.name in served, f"no such metric: {node.name} in {text}"
            labels |= served[node.name].keys()
            for matcher in node.matchers.matchers:
                known = served[node.name]
                assert matcher.name in known.keys() | OF_PROMETHEUS, (
                    f"{node.name} has no label {matcher.name}"
                )
                if matcher.name in FIXED_LABELS:
                    assert set(matcher.value.split("|")) <= known[matcher.name], f"{matcher} in {text}"
    for node in nodes(expression):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= labels, text
    return labels


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_the_panels_show_metrics_of_a_server(panel: dict[str, Any], served: Values) -> None:
    for target in panel["targets"]:
        labels = check(target["expr"], served)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
        assert 'job=~"$job"' in target["expr"] and 'instance=~"$instance"' in target["expr"]


def test_the_variables_are_labels_of_a_server(served: Values) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert label in check(selector, served)
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == names


def test_the_panels_fill_their_lines_and_have_their_own_numbers() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and len(PANELS) > 20
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert all(panel["description"].endswith(".") for panel in PANELS)


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_the_alerts_watch_metrics_of_a_server(rule: dict[str, Any], served: Values) -> None:
    labels = check(rule["expr"], served)
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert (
        rule["labels"]["severity"] in ("warning", "critical")
        and {"summary", "description"} == rule["annotations"].keys()
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("transom_row_total", "no such metric: transom_row_total"),
        ('transom_rows_total{site="1"}', "transom_rows_total has no label site"),
        ('transom_rows_total{fate="lost"}', "lost"),
        ("sum by (site) (transom_rows_total)", "site"),
    ],
)
def test_a_wrong_name_is_noticed(text: str, says: str, served: Values) -> None:
    with pytest.raises(AssertionError, match=says):
        check(text, served)


def test_the_scrape_example_reads_the_alerts() -> None:
    example = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    assert [(MONITORING / name).exists() for name in example["rule_files"]] == [True]
    (scrape,) = example["scrape_configs"]
    assert scrape["job_name"] == "transom"  # the alert on `up` names it
