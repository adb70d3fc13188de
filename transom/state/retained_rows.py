"""The rows that a stream retains: which files hold them, and what each of their batches did to the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from transom.state.json_forms import decode_known_intervals, encode_intervals
from transom.state.state_json import decode_closed, encode_closed
from transom.windows.closed_time import Closed
from transom.windows.intervals import IntervalSet


class RetainedFile(NamedTuple):
    """The accepted rows of some batches of a stream: their file, the first and the last batch, and what it holds.

    `low` and `high` are the least and the greatest time of its rows, None if it has none. If the backend wrote the
    rows, the file is a sealed directory.
    """

    path: str
    first: int
    last: int
    batches: int
    rows: int
    low: int | None
    high: int | None
    bytes: int
    is_sealed: bool


@dataclass(frozen=True)
class RetainedRows:
    """The files of a stream, in the order of their batches.

    In `missed` are the times of accepted rows that no file holds: they came before the first batch that was
    retained, or were deleted.
    """

    files: tuple[RetainedFile, ...] = ()
    missed: IntervalSet = IntervalSet()

    def to_json(self) -> dict[str, Any]:
        columns = {name: [getattr(file, name) for file in self.files] for name in RetainedFile._fields}
        return {"files": columns, "missed": encode_intervals(self.missed)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RetainedRows:
        columns = (stored["files"][name] for name in RetainedFile._fields)
        return cls(tuple(map(RetainedFile, *columns)), decode_known_intervals(stored["missed"]))


@dataclass(frozen=True)
class RetainedBatch:
    """What a batch did to a stream: its accepted rows, and what was closed before and after it.

    `clock` is the batch's reading of the engine's clock, `low` the least time of its rows. With `ended`, the stream
    ended or fell idle. In `shed` are the times of rows that the batch dropped.
    """

    batch_id: int
    clock: int
    rows: int
    before: Closed
    after: Closed
    low: int | None = None
    ended: bool = False
    shed: IntervalSet = IntervalSet()

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch_id,
            "clock": self.clock,
            "rows": self.rows,
            "before": encode_closed(self.before),
            "after": encode_closed(self.after),
            "low": self.low,
            **({"ended": True} if self.ended else {}),
            **({"shed": encode_intervals(self.shed)} if self.shed else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RetainedBatch:
        return cls(
            stored["batch"],
            stored["clock"],
            stored["rows"],
            decode_closed(stored["before"]),
            decode_closed(stored["after"]),
            stored["low"],
            stored.get("ended", False),
            decode_known_intervals(stored.get("shed", ())),
        )
