"""Results by cursor: whoever reads, at whatever pace, sees every batch's results once and in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import SettingError
from transom.results.result_rows import ResultBatch, Results
from transom.runtime.journal import Cursor, Journal, JournalQuery
from transom.state.commit_record import ResultFiles

SCHEMA = pa.schema([("value", pa.int64())])
WHOSE = JournalQuery("q", 0, SCHEMA)


class Loop:
    """As much of a batch loop as a journal needs: what batches made is kept, and told at their end."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = SimpleNamespace(batch_id=0)
        self.followers: list[Callable[[Any], None]] = []
        self.outputs = self  # which holds the results of batches
        self.directory = SimpleNamespace(registry=())
        self.result_batches: list[ResultFiles] = []
        self.kept: dict[int, pa.Table] = {}

    def batch(self, values: list[int], name: str = "q") -> None:
        batch_id = self.state.batch_id = self.state.batch_id + 1
        results = made(values, name) if values else Results()
        if values:
            self.result_batches.append(ResultFiles(batch_id, 0))
            self.kept[batch_id] = table(values if name == "q" else [])
        for follower in self.followers:
            follower(SimpleNamespace(batch_id=batch_id, results=results))

    def batch_results(self, name: str, schema: pa.Schema, since: int, batch_id: int) -> pa.Table:
        return self.kept[batch_id]


def table(values: list[int]) -> pa.Table:
    return pa.table({"value": values}, SCHEMA)


def made(values: list[int], name: str = "q") -> Results:
    return Results([ResultBatch([name], np.array([0, len(values)]), table(values))])


def read_all(journal: Journal, cursor: Cursor, limit: int) -> tuple[list[int], Cursor]:
    found, more = [], True
    while more:
        read = journal.read(WHOSE, cursor, limit)
        assert read.table.num_rows <= limit
        assert read.table.num_rows or not read.more
        found += read.table["value"].to_pylist()
        cursor, more = Cursor.parse(str(read.cursor)), read.more
    return found, cursor


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(0, 5)),
        st.tuples(st.just("other"), st.integers(1, 3)),
        st.tuples(st.just("read"), st.integers(1, 7)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0, 40, 200, 1 << 20]))
def test_a_reader_sees_every_result_of_a_batch_once_and_in_order(
    steps: list[tuple[str, int]], memory: int
) -> None:
    loop = Loop()
    journal = Journal(loop, memory)  # type: ignore[arg-type]
    wanted: list[int] = []
    found: list[int] = []
    cursor = Cursor()
    for step, number in steps:
        if step == "batch":
            values = list(range(len(wanted), len(wanted) + number))
            loop.batch(values)
            wanted += values
        elif step == "other":
            loop.batch([-1] * number, name="other")
        elif step == "restart":  # the memory is gone, the checkpoint and the reader's cursor are not
            loop.followers.clear()
            journal = Journal(loop, memory)  # type: ignore[arg-type]
        else:  # one read, which may end within a batch
            read = journal.read(WHOSE, cursor, number)
            found += read.table["value"].to_pylist()
            cursor = Cursor.parse(str(read.cursor))
    rest, cursor = read_all(journal, cursor, 3)
    assert found + rest == wanted
    assert read_all(journal, cursor, 3) == ([], cursor)
    assert read_all(journal, Cursor(), 4)[0] == wanted


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=30), st.integers(1, 5))
def test_what_prods_are_told_comes_in_between_while_it_is_in_memory(
    parts: list[tuple[bool, int]], limit: int
) -> None:
    loop = Loop()
    journal = Journal(loop, 1 << 20)  # type: ignore[arg-type]
    wanted: list[int] = []
    for is_prod, number in parts:
        values = list(range(len(wanted), len(wanted) + number))
        wanted += values
        if is_prod:
            journal.add_prod(made(values), loop.state.batch_id)
        else:
            loop.batch(values)
    assert read_all(journal, Cursor(0, journal.epoch, 0), limit)[0] == wanted


def test_the_end_is_behind_all_there_is() -> None:
    loop = Loop()
    journal = Journal(loop, 1 << 20)  # type: ignore[arg-type]
    loop.batch([1, 2])
    end = journal.end()
    assert journal.read(WHOSE, end).table.num_rows == 0
    journal.add_prod(made([3]), 1)
    loop.batch([4])
    assert journal.read(WHOSE, end).table["value"].to_pylist() == [3, 4]
    assert journal.is_in_memory(WHOSE, end)


def test_what_no_longer_fits_is_read_back() -> None:
    loop = Loop()
    journal = Journal(loop, 40)  # type: ignore[arg-type]
    start = journal.end()
    for batch_id in range(5):
        loop.batch([batch_id] * 4)
    assert not journal.is_in_memory(WHOSE, start)
    assert journal.read(WHOSE, start).table["value"].to_pylist() == [p for p in range(5) for _ in range(4)]
    assert journal.recent(WHOSE, 3).num_rows == 3
    assert journal.recent(WHOSE, 10).num_rows == 4, "of what is in memory"
    assert journal.recent(WHOSE, 10, deep=True)["value"].to_pylist() == [2, 2, 3, 3, 3, 3, 4, 4, 4, 4]


def test_a_query_does_not_see_what_another_of_its_name_made() -> None:
    loop = Loop()
    journal = Journal(loop, 1 << 20)  # type: ignore[arg-type]
    loop.batch([1])
    loop.batch([2])
    again = JournalQuery("q", 2, SCHEMA)
    assert journal.read(again, Cursor()).table["value"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("cursor", "text"),
    [
        (Cursor(), "batch.0-epoch.-entry.0-row.0"),
        (Cursor(813), "batch.813-epoch.-entry.0-row.0"),
        (Cursor(813, "c0ffee", 2, 10), "batch.813-epoch.c0ffee-entry.2-row.10"),
    ],
    ids=["the start", "of a batch", "within an entry"],
)
def test_a_cursor_is_stored_by_field_names(cursor: Cursor, text: str) -> None:
    assert str(cursor) == text
    assert Cursor.parse(text) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1-c0ffee-2-3",
        "batch.1-epoch.c0ffee-entry.2",
        "batch.1-epoch.c0ffee-entry.2-row.3-row.4",
        "batch.-1-epoch.c0ffee-entry.0-row.0",
        "batch.1-epoch.x-entry.0-row.0",
        "batch.1e9-epoch.c0ffee-entry.0-row.0",
        "batch.1-epoch.c0ffee-entry.2-row.3\n",
    ],
)
def test_what_is_no_cursor_is_an_error(text: str) -> None:
    with pytest.raises(SettingError, match="not a cursor"):
        Cursor.parse(text)


def test_listeners_are_told_of_batches_and_prods_until_they_end() -> None:
    loop = Loop()
    journal = Journal(loop, 1 << 20)  # type: ignore[arg-type]
    heard: list[int] = []
    end = journal.listen(lambda: heard.append(1))
    loop.batch([])
    journal.add_prod(made([1]), 1)
    end()
    loop.batch([2])
    assert len(heard) == 2
