"""What a commit stores beside the state: the queries and summaries, how far sources came, and the settings
that a later engine must share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transom.errors import StateError
from transom.state.pass_decisions import PassDecisions

Pace = Sequence[tuple[int, float]]  # amounts of work, each with the seconds that it took


@dataclass(frozen=True)
class QueryRecord:
    """A registered query. One that is suspended says why."""

    name: str
    text: str
    partial: bool = False  # also report windows that were seen only in part
    since: int = 0  # the batch it joined with
    suspended: str | None = None
    failing: int = 0  # batches in a row in which one of its functions failed
    summaries: tuple[str, ...] = ()  # that it was bound to

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "text": self.text,
            "partial": self.partial,
            "since_batch": self.since,
            "suspended": self.suspended,
            "failing_batches": self.failing,
            "summaries": list(self.summaries),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> QueryRecord:
        return cls(
            name=stored["name"],
            text=stored["text"],
            partial=stored["partial"],
            since=stored["since_batch"],
            suspended=stored["suspended"],
            failing=stored["failing_batches"],
            summaries=tuple(stored["summaries"]),
        )


@dataclass(frozen=True)
class SummaryRecord:
    """A summary by its CREATE SUMMARY text, with the batch that it came with."""

    name: str
    text: str
    since: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "text": self.text, "since_batch": self.since}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SummaryRecord:
        return cls(name=stored["name"], text=stored["text"], since=stored["since_batch"])


@dataclass(frozen=True)
class CommitRecord:
    """What a commit stores beside the state.

    `sources` is the progress of each stream's source, in a form of the source's own. `result_batches` are the
    batches that made results, with their readings of the clock. `idle_closed` says by stream whether its
    windows were closed since its last rows. `paces` are the rows and seconds of the last batches of streams
    whose budget is a time; `probing_pace` and `inserting_seconds` are the same for queries with a preference.
    `decisions` are the planner's that hold and do not follow from the state alone; they are parts of the
    snapshot, not of this record's JSON.
    """

    queries: tuple[QueryRecord, ...] = ()
    summaries: tuple[SummaryRecord, ...] = ()
    sources: Mapping[str, Any] = field(default_factory=dict)
    result_batches: tuple[tuple[int, int], ...] = ()
    idle_closed: Mapping[str, bool] = field(default_factory=dict)
    naive: bool = False
    backend: str = "spark"
    paces: Mapping[str, Pace] = field(default_factory=dict)
    probing_pace: Pace = ()
    inserting_seconds: float = 0.0
    decisions: tuple[PassDecisions, ...] = ()

    def check_settings(self, naive: bool, backend: str) -> None:
        """Refuse to continue with another strategy or another backend: what they keep differs."""
        if self.naive != naive:
            made = "with the strategy naive" if self.naive else "with another strategy than naive"
            raise StateError(
                f"the checkpoint was made {made}: continue it so, or use a new checkpoint directory"
            )
        if self.backend != backend:
            raise StateError(
                f"the checkpoint was made by the {self.backend} backend, this engine runs on {backend}: "
                f"continue it on {self.backend}, or use a new checkpoint directory"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "queries": [query.to_json() for query in self.queries],
            "summaries": [summary.to_json() for summary in self.summaries],
            "sources": dict(self.sources),
            "result_batches": {
                "batch": [batch_id for batch_id, _ in self.result_batches],
                "clock": [clock for _, clock in self.result_batches],
            },
            "idle_closed": dict(self.idle_closed),
            "naive": self.naive,
            "backend": self.backend,
            "paces": {stream: _encode_pace(pace) for stream, pace in self.paces.items()},
            "probing_pace": _encode_pace(self.probing_pace),
            "inserting_seconds": self.inserting_seconds,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], decisions: tuple[PassDecisions, ...] = ()) -> CommitRecord:
        results = stored["result_batches"]
        return cls(
            queries=tuple(map(QueryRecord.from_json, stored["queries"])),
            summaries=tuple(map(SummaryRecord.from_json, stored["summaries"])),
            sources=stored["sources"],
            result_batches=tuple(zip(results["batch"], results["clock"], strict=True)),
            idle_closed=stored["idle_closed"],
            naive=stored["naive"],
            backend=stored["backend"],
            paces={stream: _decode_pace(pace) for stream, pace in stored["paces"].items()},
            probing_pace=_decode_pace(stored["probing_pace"]),
            inserting_seconds=stored["inserting_seconds"],
            decisions=decisions,
        )


def _encode_pace(pace: Pace) -> dict[str, list[Any]]:
    return {"amount": [amount for amount, _ in pace], "seconds": [seconds for _, seconds in pace]}


def _decode_pace(stored: Mapping[str, list[Any]]) -> Pace:
    return tuple(zip(stored["amount"], stored["seconds"], strict=True))
