"""The write-ahead log: intents and committed states as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from transom.elements import Clock, Drop, Punctuation
from transom.errors import StateError
from transom.runtime.write_ahead_log import RETAINED_STATES, BatchIntent, BatchLog
from transom.state.checkpoint_format import FORMAT_VERSION
from transom.state.commit_record import CommitRecord, QueryRecord
from transom.state.state import State
from transom.storage.file_store import Store

INTENT = BatchIntent(
    12,
    1000,
    "bids",
    {"files": ["a.csv"]},
    (Drop("q"), Punctuation(Clock("bids", "ts"), 9)),
    ("bids",),
    {"sites": 3},
    5000,
    ("sidelined/bids/0000000011/0",),
    {"p": 1024},
    True,
)

STORED = {
    "version": FORMAT_VERSION,
    "batch": 12,
    "clock": 1000,
    "stream": "bids",
    "reference": {"files": ["a.csv"]},
    "control": [
        {"control": "drop", "name": "q"},
        {
            "control": "punctuation",
            "clock": {"stream": "bids", "attribute": "ts", "kind": "time"},
            "until": 9,
            "since": None,
            "where": [],
        },
    ],
    "ended": ["bids"],
    "tables": {"sites": 3},
    "budget": 5000,
    "sidelined": ["sidelined/bids/0000000011/0"],
    "probes": {"p": 1024},
    "resumes": True,
}


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store.temporary()
    yield store
    store.delete()


def test_an_intent_is_stored_by_field_names(store: Store) -> None:
    BatchLog(store).begin(INTENT)
    assert json.loads(store.read("log/0000000012.json")) == STORED


@pytest.mark.parametrize("intent", [INTENT, BatchIntent(1, 0)], ids=["full", "of a control batch"])
def test_an_intent_comes_back(store: Store, intent: BatchIntent) -> None:
    log = BatchLog(store)
    log.begin(intent)
    assert BatchLog(store).intent(intent.batch_id) == intent
    assert log.intent(intent.batch_id + 1) is None


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"version": 99}, "the checkpoint has format 99, this version of transom reads format"),
        ({}, "the checkpoint has format 5 or older, this version of transom reads format"),
    ],
    ids=["newer", "before entries carried a version"],
)
def test_an_entry_of_another_version_is_refused(store: Store, version: dict[str, int], message: str) -> None:
    stored = {name: value for name, value in STORED.items() if name != "version"} | version
    store.write("log/0000000012.json", json.dumps(stored).encode())
    with pytest.raises(StateError, match=message):
        BatchLog(store).intent(12)


def test_the_last_state_comes_back_and_old_ones_go(store: Store) -> None:
    log = BatchLog(store)
    assert log.last() is None
    for batch_id in range(RETAINED_STATES + 2):
        log.begin(BatchIntent(batch_id, 0))
        log.commit(State(batch_id), CommitRecord("local", queries=(QueryRecord(f"q{batch_id}", "SELECT 1"),)))
    assert len(store.list("state")) == len(store.list("log")) == RETAINED_STATES
    state, record = BatchLog(store).last() or (None, None)
    assert state == State(RETAINED_STATES + 1)
    assert record is not None and record.queries[0].name == f"q{RETAINED_STATES + 1}"


def test_an_intent_says_what_the_batch_leaves_out(store: Store) -> None:
    log, intent = BatchLog(store), replace(INTENT, suspended={"q": "it failed", "summary s": "too large"})
    log.begin(intent)
    assert json.loads(store.read("log/0000000012.json")) == {**STORED, "suspended": dict(intent.suspended)}
    assert log.intent(12) == intent
