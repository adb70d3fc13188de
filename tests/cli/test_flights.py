"""The demo's stream and queries, and a short demo on Spark."""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import transom
from transom.cli.demo import declare_demo
from transom.cli.flights import YEAR, batches, demo_queries, flights, most_queries
from transom.cli.main import app


@pytest.fixture(scope="module")
def year() -> pa.Table:
    return flights()


def test_flights_are_in_the_order_of_departure(year: pa.Table) -> None:
    left, sched = year["left"].to_numpy(), year["sched"].to_numpy()
    assert year.num_rows == 336_776
    assert (left[1:] >= left[:-1]).all()
    assert (sched[1:] < sched[:-1]).any(), "there is disorder"


def test_batches_contain_every_flight_once(year: pa.Table) -> None:
    cut = list(batches(year, timedelta(hours=12), 365))
    assert sum(batch.num_rows for batch in cut) == year.num_rows
    joined = pa.concat_tables(cut)
    assert joined["sched"].cast(pa.int64()).equals(year["sched"])
    assert "left" not in joined.column_names


def test_an_endless_demo_repeats_the_year(year: pa.Table) -> None:
    once = list(batches(year, timedelta(days=30), 365))
    endless = batches(year, timedelta(days=30), None)
    first, again = next(endless), [next(endless) for _ in range(len(once))][-1]
    assert first.equals(once[0])
    shifted = again["sched"].cast(pa.int64()).to_numpy() - first["sched"].cast(pa.int64()).to_numpy()
    assert set(shifted.tolist()) == {YEAR}


def test_the_demo_has_as_many_different_queries_as_it_reports() -> None:
    every = demo_queries(most_queries())
    assert len(every) == len(set(every.values())) == most_queries()
    assert list(demo_queries(48).items()) == list(every.items())[:48]


def test_a_demo_of_few_queries_has_no_more() -> None:
    with transom.Engine(backend="local") as engine:
        replay = declare_demo(engine, 3, None)
        assert replay.queries == len(engine.queries()) == 3


@pytest.mark.usefixtures("spark")
def test_a_short_demo_ends_by_itself_with_a_summary(year: pa.Table) -> None:
    done = CliRunner().invoke(app, ["demo", "--days", "2", "--queries", "16"])
    assert done.exit_code == 0, done.stderr
    summary = dict(re.findall(r"^  ([a-z ]+?)  +(.*)$", done.stdout, re.MULTILINE))
    assert len(set(map(len, re.findall(r"^  [a-z ]+?  +(?=\S)", done.stdout, re.MULTILINE)))) == 1, "aligned"
    rows = sum(batch.num_rows for batch in batches(year, timedelta(days=1), 2))
    assert summary["rows"].startswith(f"{rows:,} flights")
    assert summary["queries"].startswith("16,")
    assert set(summary) == {
        "rows",
        "queries",
        "windows closed",
        "late rows",
        "rejected rows",
        "rows per second",
        "early birds",
        "in buckets",
    }
    exact, bounds = (
        dict(re.findall(r"(\w+)=([\d.]+)", summary[name])) for name in ("early birds", "in buckets")
    )
    assert exact["flights"] == bounds["flights"] != "0"
    assert float(bounds["miles_low"]) <= float(exact["miles"]) <= float(bounds["miles_high"])
