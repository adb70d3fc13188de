"""What a commit stores beside the state."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from transom.errors import StateError
from transom.state.commit_record import CommitRecord, QueryRecord, ResultFiles, RowFiles, SummaryRecord
from transom.state.state_tables import decode_registered, encode_registered

RECORD = CommitRecord(
    queries=(
        QueryRecord("q", "SELECT 1"),
        QueryRecord("p", "SELECT 2", True, 4, "divides by zero", 3, ("s", "t"), "o", 6, True, "two", ("x",)),
    ),
    summaries=(SummaryRecord("s", "CREATE SUMMARY s", 2),),
    views={"v": "SELECT * FROM bids"},
    sources={"bids": ["a.csv"], "quotes": True},
    result_batches=(ResultFiles(3, 1000, 1), ResultFiles(5, 2000, None)),
    row_files={"late/bids": (RowFiles("late/bids/0000000004-5c1f", 4, 4, 1500, 900, True),)},
    idle_closed={"bids": True},
    naive=True,
    backend="local",
    paces={"bids": ((100, 0.5), (200, 0.75))},
    probing_pace=((1024, 0.25),),
    inserting_seconds=0.125,
)

QUERIES = [
    {
        "name": "q",
        "text": "SELECT 1",
        "partial": False,
        "since_batch": 0,
        "suspended": None,
        "failing_batches": 0,
        "summaries": [],
        "origin": None,
        "edited_batch": 0,
        "paused": False,
        "description": "",
        "tags": [],
    },
    {
        "name": "p",
        "text": "SELECT 2",
        "partial": True,
        "since_batch": 4,
        "suspended": "divides by zero",
        "failing_batches": 3,
        "summaries": ["s", "t"],
        "origin": "o",
        "edited_batch": 6,
        "paused": True,
        "description": "two",
        "tags": ["x"],
    },
]
STORED = {
    "summaries": [{"name": "s", "text": "CREATE SUMMARY s", "since_batch": 2}],
    "views": {"v": "SELECT * FROM bids"},
    "sources": {"bids": ["a.csv"], "quotes": True},
    "result_batches": {"batch": [3, 5], "clock": [1000, 2000], "files": [1, None]},
    "row_files": {
        "late/bids": [
            {
                "directory": "late/bids/0000000004-5c1f",
                "first_batch": 4,
                "last_batch": 4,
                "clock": 1500,
                "bytes": 900,
                "sealed": True,
            }
        ]
    },
    "idle_closed": {"bids": True},
    "naive": True,
    "backend": "local",
    "paces": {"bids": {"amount": [100, 200], "seconds": [0.5, 0.75]}},
    "probing_pace": {"amount": [1024], "seconds": [0.25]},
    "inserting_seconds": 0.125,
}


def test_a_record_is_stored_by_field_names() -> None:
    assert RECORD.to_json() == STORED
    assert encode_registered(RECORD.queries).to_pylist() == QUERIES


@pytest.mark.parametrize("record", [RECORD, CommitRecord("spark")], ids=["full", "empty"])
def test_a_record_comes_back(record: CommitRecord) -> None:
    queries = decode_registered(encode_registered(record.queries))
    assert CommitRecord.from_json(json.loads(json.dumps(record.to_json())), queries) == record


def test_units_are_a_column_only_if_a_query_has_some() -> None:
    with_units = replace(RECORD.queries[1], units=(("total", "EUR"), ("delay", "min")))
    queries = (RECORD.queries[0], with_units)
    assert "units" not in encode_registered(RECORD.queries).column_names
    assert encode_registered(queries)["units"].to_pylist() == [[], [("total", "EUR"), ("delay", "min")]]
    assert decode_registered(encode_registered(queries)) == queries


def test_the_same_settings_are_accepted() -> None:
    RECORD.check_settings(naive=True, backend="local")
    CommitRecord("spark").check_settings(naive=False, backend="spark")


@pytest.mark.parametrize(
    ("naive", "backend", "message"),
    [
        (False, "local", "was made with the strategy naive: continue it so"),
        (True, "spark", "was made by the local backend, this engine runs on spark: continue it on local"),
    ],
    ids=["another strategy", "another backend"],
)
def test_other_settings_are_refused(naive: bool, backend: str, message: str) -> None:
    with pytest.raises(StateError, match=message):
        RECORD.check_settings(naive, backend)
