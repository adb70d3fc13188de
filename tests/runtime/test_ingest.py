"""Why a row is late, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from transom.elements import Clock, ClockKind
from transom.runtime.ingest import with_reason

CLOSED = "every window that asked for it was closed: watermark 100"
OTHERWISE = "every window that asked for it was closed by a punctuation, or as the stream fell idle or ended"
OLD = "it is older than all that is kept for lookups"


@pytest.mark.parametrize(
    ("pushed", "looked_up", "mark", "reason"),
    [
        (True, False, 100, CLOSED),
        (True, False, None, OTHERWISE),
        (True, True, 100, f"{CLOSED} and {OLD}"),
        (False, True, 100, OLD),
        (False, True, None, OLD),
    ],
)
def test_a_late_row_s_reason_is_about_the_queries_that_there_are(
    pushed: bool, looked_up: bool, mark: int | None, reason: str
) -> None:
    closed = SimpleNamespace(watermark=lambda: mark)
    batch_id: Any = SimpleNamespace(
        rules=SimpleNamespace(clock=Clock("s", "ts", ClockKind.INTEGER)),
        before=SimpleNamespace(clock=lambda clock: SimpleNamespace(closed=closed)),
        queries=["pushed"] * pushed,
        looking=["looked up"] * looked_up,
    )
    found = with_reason(pa.table({"ts": [50]}), batch_id)
    assert isinstance(found, pa.Table) and found["reason"].to_pylist() == [reason]
