"""The load test counts what its readers read, and says when something is missing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.service import verdict
from benchmarks.subscribers import Reader

EVENT = b'data: {"rows": [{"x": 1, "batch": 7, "made": "..."}, {"x": 2, "batch": 8, "made": "..."}]}'


def test_a_reader_counts_rows_and_notes_their_batches() -> None:
    reader = Reader("q1")
    for line in (
        b"HTTP/1.1 200 OK",
        b"1f4",
        b"event: columns",
        b"",
        b"event: results",
        b"id: 8-a-2-0",
        EVENT,
        b": ",
    ):
        reader.take(line)
    assert reader.connected.is_set()
    assert (reader.rows, reader.events, sorted(reader.came)) == (2, 1, [7, 8])


def test_a_reader_that_is_refused_says_so() -> None:
    with pytest.raises(OSError, match="429"):
        Reader("q1").take(b"HTTP/1.1 429 Too Many Requests\r")


BLOCKS = [
    ("all is well", {}, 0),
    ("a row is missing", {"missing": 1}, 1),
    ("a reader failed", {"errors": 1}, 1),
    ("batches are too slow", {"batch_p50_ms": 120.0}, 1),
]


@pytest.mark.parametrize(("found", "code"), [case[1:] for case in BLOCKS], ids=[case[0] for case in BLOCKS])
def test_the_verdict(found: dict[str, Any], code: int) -> None:
    without = {"readers": "without", "batch_p50_ms": 100.0}
    with_readers = {"readers": "with", "batch_p50_ms": 105.0, "missing": 0, "errors": 0} | found
    assert verdict([without, with_readers], short=False) == code
