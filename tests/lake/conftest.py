"""Tables of Delta Lake; `make test-lake` runs these tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from transom.errors import StateError
from transom.storage.failpoints import arm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("lake")


def bids(*rows: tuple[int | None, str], price: float = 1.0) -> pa.Table:
    """Rows of a site and a time."""
    times = pa.array([f"2024-01-01 {clock}" for _, clock in rows]).cast(pa.timestamp("us"))
    return pa.table(
        {
            "site": pa.array([site for site, _ in rows], pa.int32()),
            "price": pa.array([price] * len(rows), pa.float64()),
            "ts": times.cast(pa.timestamp("us", "UTC")),
        }
    )


@contextmanager
def power_cut(moment: str) -> Iterator[None]:
    """Let the first failpoint of this name fail the batch that the block runs."""
    reached: list[str] = []

    def fail(point: str) -> None:
        if point == moment and not reached:
            reached.append(point)
            raise OSError("the power is gone")

    arm(fail)
    try:
        with pytest.raises((OSError, StateError), match="the power is gone"):
            yield
    finally:
        arm(None)


def append(place: Path, rows: pa.Table, **options: Any) -> None:
    """Let a version of a table add rows."""
    from deltalake import write_deltalake

    write_deltalake(str(place), rows, mode="append", **options)


def table_rows(place: Path, names: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
    """The rows of a table."""
    from deltalake import DeltaTable

    rows = pa.table(DeltaTable(str(place)).scan())
    return (rows if names is None else rows.select(names)).to_pylist()
