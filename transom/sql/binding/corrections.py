"""Checks of EMIT CORRECTIONS: which queries can correct the results of closed windows."""

from __future__ import annotations

from transom.elements import ClockKind
from transom.sql.binding.select import SelectBinder
from transom.sql.syntax.parsed_query import Parsed


def check_corrections(
    parsed: Parsed,
    selection: SelectBinder,
    within: int | None,
    has_empty_windows: bool,
    joins_streams: bool,
    decides_early: bool,
) -> None:
    """Refuse EMIT CORRECTIONS where no row is late, or where a late row changes more than the windows that hold it."""
    if within is None:
        return
    windowing = selection.windowing
    if windowing.spec.is_keyed or windowing.clock.kind is ClockKind.ROWS:
        parsed.fail("EMIT CORRECTIONS is not for windows of ROWS: no row is late for them")
    if windowing.spec.is_session:
        parsed.fail(
            "EMIT CORRECTIONS is not supported for session windows: a late row could merge sessions that are final; "
            "use a longer slack for the stream"
        )
    if selection.lags.bound(windowing):
        parsed.fail(
            "EMIT CORRECTIONS is not supported with LAG: a late row would change the results of later windows; "
            "leave out one of the two"
        )
    if has_empty_windows:
        parsed.fail(
            "EMIT CORRECTIONS is not supported with EMIT EMPTY: a late row would change which windows are empty; "
            "leave out one of the two"
        )
    if decides_early:
        parsed.fail(
            "EMIT CORRECTIONS is not supported with HAVING ... WITH CONFIDENCE: a final result confirms or withdraws a "
            "decision once; leave out one of the two"
        )
    relation = selection.scope.stream.relation
    if not relation.is_declared and parsed.derived is None and not joins_streams:
        parsed.fail(
            f"EMIT CORRECTIONS is not for a query over the results of {relation.name}: it corrects windows of rows"
        )
    if joins_streams:
        parsed.fail(
            "EMIT CORRECTIONS is not supported in a join of streams: its rows are kept for the time bound only; "
            "use a longer slack for the streams"
        )
