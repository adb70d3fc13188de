"""Selections with a WINDOW: a tuple is reported when it is selected, and again when it leaves the window."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.preference_helpers import Sale, sale, sales, stores
from transom.plan.limits import Limits

SELECTION = (
    "SELECT item, price, ts FROM store1 WHERE item < 4 "
    "WITH PREFERENCE {} SUMMARY.Estimate.Count(item) WINDOW '25 seconds' {}"
)


class NaiveSelection:
    """The answer of a selection with a window of 25 seconds, computed from all rows so far."""

    def __init__(self) -> None:
        self.rows: list[Sale] = []
        self.newest: Any = None

    def add(self, rows: list[Sale]) -> None:
        self.rows += rows
        self.newest = max(row[2] for row in self.rows)

    @property
    def selected(self) -> Counter[Any]:
        return Counter(row for row in self.rows if row[0] < 4)

    @property
    def expired(self) -> Counter[Any]:
        old = (row for row in self.selected.elements() if (self.newest - row[2]).total_seconds() >= 25)
        return Counter(old)


def reported(query: Any, is_expired: bool) -> Counter[Any]:
    rows = query.results().to_pylist()
    return Counter((row["item"], row["price"], row["ts"]) for row in rows if row["expired"] is is_expired)


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_every_tuple_is_reported_when_it_is_selected_and_when_it_expires(
    state: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path, state=state)
    query = engine.register(SELECTION.format("desc", ""), "recent")
    rng, naive = np.random.default_rng(seed), NaiveSelection()
    for batch in range(7):
        rows = sales(rng, 10.0 * batch - 3 * (batch % 3), rows=30)  # not in order of time
        feeds[1].push(rows)
        engine.step()
        naive.add(rows)
        assert reported(query, False) == naive.selected
        assert reported(query, True) == naive.expired
    assert naive.expired and naive.selected - naive.expired
    engine.stop()


def test_a_tuple_expires_when_it_is_a_window_older_than_the_newest(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(SELECTION.format("desc", ""), "recent")
    expired = []
    for row in (sale(1, 0), sale(9, 24.999999), sale(9, 25), sale(9, 25), sale(2, 100), sale(3, 60)):
        feeds[1].push([row])
        engine.step()
        expired.append([one["item"] for one in query.results().to_pylist() if one["expired"]])
    # The last one is not late for the summary, and has left the window when it arrives.
    assert expired == [[], [], [1], [1], [1], [1, 3]]
    assert [(row["item"], row["expired"]) for row in query.results().to_pylist()] == [
        (1, False), (1, True), (2, False), (3, False), (3, True),
    ]  # fmt: skip
    assert query.coverage().produced == 3
    engine.stop()


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_only_tuples_that_were_selected_expire_and_a_restart_changes_nothing(
    order: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    found = {}
    for kind in ("whole", "restarted"):
        engine, feeds = stores(make_engine, tmp_path / kind)
        engine.register_all(
            {f"q{n}": SELECTION.format(order, f"BUDGET {n} PROBES").replace("< 4", f"< {n}") for n in (2, 4)}
        )
        rng, naive = np.random.default_rng(seed), NaiveSelection()
        for batch in range(6):
            rows = sales(rng, 10.0 * batch, rows=30)
            feeds[1].push(rows)
            engine.step()
            engine.step()  # resumes what was deferred
            naive.add(rows)
            if kind == "restarted":
                engine.stop()
                engine, feeds = stores(make_engine, tmp_path / kind)
            query = engine.query("q4")
            selected, expired = (reported(query, is_expired) for is_expired in (False, True))
            assert not selected - naive.selected
            assert expired == Counter(row for row in selected.elements() if row in naive.expired)
        found[kind] = [engine.query(name).results().drop_columns(["made"]) for name in ("q2", "q4")]
        assert sum(one.num_rows for one in found[kind])
        engine.stop()
    rows = {kind: [Counter(map(str, one.to_pylist())) for one in tables] for kind, tables in found.items()}
    assert rows["whole"] == rows["restarted"]


def test_tuples_expire_after_they_moved_to_the_executors(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    limits = Limits(tuple_files=2, driver_tuples=50)
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 8", state="auto", limits=limits)
    query = engine.register(SELECTION.format("desc", ""), "recent")
    rng, naive = np.random.default_rng(seed), NaiveSelection()
    for batch in range(5):
        rows = sales(rng, 10.0 * batch, rows=30)
        feeds[1].push(rows)
        engine.step()
        naive.add(rows)
    assert reported(query, False) == naive.selected and reported(query, True) == naive.expired
    engine.stop()


def test_only_selections_with_a_window_have_the_column(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    text = SELECTION.format("desc", "")
    without = engine.register(text.replace("WINDOW '25 seconds'", ""), "all")
    named = engine.register(text.replace("SELECT item", "SELECT item, item AS expired"), "named")
    mean = engine.register(text.replace("item, price, ts", "avg(price) AS m"), "mean")
    feeds[1].push([sale(1, 0)])
    engine.step()
    assert "expired" not in without.results().column_names + mean.results().column_names
    (row,) = named.results().to_pylist()
    assert row["expired"] == 1 and row["transom_expired"] is False
    engine.stop()
