"""Corrected results over HTTP, with the client, in metrics, trends and the dashboard's charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids
from tests.server.server_helpers import Backend, backend
from transom.dashboard.chart_points import ChartSelection, chart_data
from transom.dashboard.result_table import result_table
from transom.dashboard.results_panel import ResultsPanel

NAME = "corrected"
QUERY = (
    "SELECT site, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site "
    "HAVING sum(price) < 10 EMIT CORRECTIONS WITHIN '1 hour'"
)
BATCHES = [
    [(1, 6.0, "12:00:10"), (2, 7.0, "12:00:20")],
    [(1, 8.0, "12:05:00")],
    [(1, 2.0, "12:00:30"), (2, 9.0, "12:00:40")],
]


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Any) -> Iterator[Backend]:
    with backend(make_engine, tmp_path) as made:
        made.engine.register(QUERY, NAME)
        for rows in BATCHES:
            made.push(bids(*rows))
        yield made


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["kind"], row["revision"], row["site"], row["total"]) for row in rows]


def test_final_results_of_an_export_are_the_corrected_ones(back: Backend) -> None:
    path = f"/api/queries/{NAME}/export"
    assert values(back.client.get(path, params={"format": "json"}).json()) == [("correction", 1, 1, 8.0)]
    everything = back.client.get(path, params={"format": "json", "kind": "all"}).json()
    assert Counter(row["kind"] for row in everything) == {"final": 2, "retraction": 2, "correction": 1}
    listed = back.client.get(f"/api/queries/{NAME}/results").json()
    assert values(listed["rows"]) == values(everything), "readers with a cursor get the changelog"
    assert next(column["name"] for column in listed["columns"] if column["role"] == "system") == "revision"


def test_the_client_has_the_newest_results(back: Backend) -> None:
    with transom.connect(back.served.url) as server:
        query = server.query(NAME)
        assert values(query.latest().to_pylist()) == [("correction", 1, 1, 8.0)]
        assert query.results().num_rows == 5


def test_metrics_count_corrections_and_trends_show_newest_values(back: Backend) -> None:
    text = back.client.get("/metrics").text
    assert f'transom_corrections_total{{query="{NAME}"}} 1.0' in text
    trend = back.served.service.trend(NAME)
    assert trend is not None and (trend.group, trend.values) == ((1,), (8.0,))


def test_the_dashboard_marks_corrections_and_draws_newest_values(back: Backend) -> None:
    table = back.engine.query(NAME).results()
    columns = back.served.service.query_detail(NAME).columns
    html = result_table(table, columns, "")
    assert html.count('data-kind="retraction"') == 2 and '<span class="tag correction">' in html
    assert ">Revision<" in html
    data, _ = chart_data(table, columns, ChartSelection())
    drawn = {
        label: [point.final and point.final.value for point in points]
        for label, points in data.groups.items()
    }
    assert drawn == {"1": [8.0], "2": [None]}
    assert ("correction", "Corrections only") in ResultsPanel(columns, "").result_kinds


def test_a_query_without_corrections_has_neither_kind_nor_column(back: Backend) -> None:
    plain = back.engine.register(QUERY.partition(" EMIT")[0], "plain")
    back.push(bids((1, 1.0, "12:06:00")))
    assert "revision" not in plain.results().column_names and not plain.corrects
    assert 'transom_corrections_total{query="plain"}' not in back.client.get("/metrics").text
    assert isinstance(plain.latest(), pa.Table)
