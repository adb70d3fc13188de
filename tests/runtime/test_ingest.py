"""Why a row is late, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from transom.backends.local.backend import LocalBackend
from transom.elements import Clock, ClockKind
from transom.runtime.ingest import with_reason

CLOSED = "a window that it belongs to is closed: watermark 100"
OTHERWISE = "a window that it belongs to is closed by a punctuation, or because the stream was idle or ended"
OLD = "it is older than all rows kept for lookups"


@pytest.mark.parametrize(
    ("pushed", "looked_up", "mark", "reason"),
    [
        (True, False, 100, CLOSED),
        (True, False, None, OTHERWISE),
        (True, True, 100, f"{CLOSED}, or {OLD}"),
        (False, True, 100, OLD),
        (False, True, None, OLD),
    ],
)
def test_a_late_row_s_reason_is_about_the_queries_that_there_are(
    pushed: bool, looked_up: bool, mark: int | None, reason: str
) -> None:
    closed = SimpleNamespace(watermark=lambda: mark)
    batch: Any = SimpleNamespace(
        rules=SimpleNamespace(clock=Clock("s", "ts", ClockKind.INTEGER)),
        before=SimpleNamespace(clock=lambda clock: SimpleNamespace(closed=closed)),
        queries=["pushed"] * pushed,
        on_demand=["looked up"] * looked_up,
        columns={"ts": pa.int64()},
    )
    rows = LocalBackend().frame(pa.table({"ts": [50]}))
    assert with_reason(rows, batch).to_table()["reason"].to_pylist() == [reason]
