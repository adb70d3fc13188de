"""What is written today is what the committed checkpoint holds, so that a change of the format is noticed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.state import golden_checkpoint
from tests.state.golden_checkpoint import DIRECTORY, INTENT, RECORD
from transom.runtime.write_ahead_log import BatchLog
from transom.state import snapshot
from transom.storage.file_store import Store

STATE, LOG, RUNS = "state/0000000007.arrow", "log/0000000008.json", "runs/0000000007.arrow"
CHANGED = "the format changed: see tests/state/golden_checkpoint.py"

TABLES = {
    "sheet", "pending", "selected", "accounts", "queries", "selections", "registered", "account_names", "floors",
    "times", "joined", "past", "ranking",
}  # fmt: skip

Parts = Mapping[tuple[str, str, int], bytes]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the committed checkpoint."""
    return Path(shutil.copytree(DIRECTORY, tmp_path / "golden"))


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """The checkpoint as it is written today."""
    golden_checkpoint.write(tmp_path / "today")
    return tmp_path / "today"


def parts_of(directory: Path) -> Parts:
    return snapshot.parts_of(Store(directory).read(STATE))


def test_the_same_files_are_written(golden: Path, today: Path) -> None:
    names = [sorted(str(f.relative_to(at)) for f in at.rglob("*") if f.is_file()) for at in (golden, today)]
    assert names[0] == names[1] == [LOG, RUNS, STATE], CHANGED


def test_the_intent_is_byte_equal(golden: Path, today: Path) -> None:
    assert (today / LOG).read_bytes() == (golden / LOG).read_bytes(), CHANGED


def test_the_json_of_the_state_is_byte_equal(golden: Path, today: Path) -> None:
    (ours,), (theirs,) = (
        [packed for (kind, _, _), packed in parts_of(at).items() if kind == "state"] for at in (today, golden)
    )
    assert ours == theirs, CHANGED


def test_the_other_parts_have_the_same_ids_and_contents(golden: Path, today: Path) -> None:
    ours, theirs = parts_of(today), parts_of(golden)
    assert list(ours) == list(theirs), CHANGED
    assert {kind for kind, _, _ in ours} == {
        "state", "sheet", "estimator", "summary", "pending", "selected", "accounts", "decisions", "queries",
        "selections", "registered", "selection_kinds", "account_names", "floors", "times", "joined", "past",
        "ranking",
    }  # fmt: skip
    for part, packed in ours.items():
        if part[0] in TABLES:
            left, right = (pa.ipc.open_stream(data).read_all() for data in (packed, theirs[part]))
            assert left.schema == right.schema and left.equals(right), (part, CHANGED)
        elif part[0] != "state":
            assert packed == theirs[part], (part, CHANGED)


def test_the_runs_have_the_same_columns_and_contents(golden: Path, today: Path) -> None:
    ours, theirs = (Store(at).read_table(RUNS)["run"].to_pylist() for at in (today, golden))
    readers = pa.ipc.open_stream, pa.ipc.open_file  # a run of a store, and tuples of a summary
    assert len(ours) == len(theirs) == len(readers), CHANGED
    for left, right, read in zip(ours, theirs, readers, strict=True):
        tables = [read(packed).read_all() for packed in (left, right)]
        assert tables[0].schema.equals(tables[1].schema, check_metadata=True), CHANGED
        assert tables[0].equals(tables[1]), CHANGED


def test_the_golden_checkpoint_is_read(golden: Path) -> None:
    log = BatchLog(Store(golden))
    state, record = log.last() or (None, None)
    assert record == RECORD and log.intent(8) == INTENT
    assert state is not None
    expected = golden_checkpoint.state()
    for name in ("batch_id", "streams", "queries", "selections", "shards", "partitions", "last_selection"):
        assert getattr(state, name) == getattr(expected, name), name
    assert state.prodders == expected.prodders
    assert {name: sheet.to_pylist() for name, sheet in state.sheets.items()} == {
        name: sheet.to_pylist() for name, sheet in expected.sheets.items()
    }
    assert snapshot.dumps(state, record) == snapshot.dumps(expected, RECORD)
