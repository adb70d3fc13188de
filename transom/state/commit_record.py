"""What a commit stores beside the state: the queries and summaries, how far sources came, and the settings
that a later engine must share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transom.errors import StateError
from transom.state.pass_decisions import PassDecisions
from transom.state.retained_rows import RetainedRows

PaceSamples = Sequence[tuple[int, float]]  # amounts of work, each with the seconds that it took


@dataclass(frozen=True)
class QueryRecord:
    """A registered query. One that is suspended says why.

    `origin` is the name that it had when it joined: its results are stored under that name.
    """

    name: str
    text: str
    partial: bool = False  # also report windows that were seen only in part
    since: int = 0  # the batch it joined with
    suspended: str | None = None
    failing: int = 0  # batches in a row in which one of its functions failed
    summaries: tuple[str, ...] = ()  # that it was bound to
    origin: str | None = None  # None: it was not renamed
    edited: int = 0  # the batch that gave it its text; 0: it joined with it
    paused: bool = False
    description: str = ""
    tags: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()  # of columns, for charts


@dataclass(frozen=True)
class SummaryRecord:
    """A summary by its CREATE SUMMARY text, with the batch that it came with. One that is suspended says why."""

    name: str
    text: str
    since: int = 0
    suspended: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "text": self.text,
            "since_batch": self.since,
            **({"suspended": self.suspended} if self.suspended is not None else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SummaryRecord:
        return cls(
            name=stored["name"],
            text=stored["text"],
            since=stored["since_batch"],
            suspended=stored.get("suspended"),
        )


class ResultFiles(NamedTuple):
    """The results of a batch: the batch, when it was made, and its number of files.

    The number is None if tasks wrote some of them: the directory is sealed then.
    """

    batch_id: int
    made: int
    files: int | None = 1


class AlertBatch(NamedTuple):
    """A batch with events of alerts, and how many there are."""

    batch_id: int
    events: int


class RowFiles(NamedTuple):
    """The late or rejected rows of some batches: a directory, the batches, when the last was made, and its bytes.

    A directory that the backend wrote is sealed; another one has a single file.
    """

    directory: str
    first: int
    last: int
    made: int
    bytes: int
    is_sealed: bool


@dataclass(frozen=True)
class CommitRecord:
    """What a commit stores beside the state.

    `views` are the texts of views by name, in the order in which they were created. `sources` is the progress of
    each stream's source, in a form of the source's own. `result_batches` are the batches that made results, with
    their readings of the clock and their files. `row_files` are the files of late and rejected rows, by kind and
    stream, such as `late/bids`. `idle_closed` says by stream whether its windows were closed since its last rows.
    `paces` are the rows and seconds of the last batches of streams whose budget is a time; `probing_pace` and
    `inserting_seconds` are the same for queries with a preference. `decisions` are the planner's that hold and do
    not follow from the state alone; they and the queries are parts of the snapshot, not of this record's JSON.
    `history` are the retained rows by stream, and `backfills` the queries that these are replayed for, each with
    the time since when. `alert_batches` are the batches with events of alerts that are retained.
    """

    backend: str
    queries: tuple[QueryRecord, ...] = ()
    summaries: tuple[SummaryRecord, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)
    result_batches: tuple[ResultFiles, ...] = ()
    row_files: Mapping[str, tuple[RowFiles, ...]] = field(default_factory=dict)
    idle_closed: Mapping[str, bool] = field(default_factory=dict)
    naive: bool = False
    paces: Mapping[str, PaceSamples] = field(default_factory=dict)
    probing_pace: PaceSamples = ()
    inserting_seconds: float = 0.0
    decisions: tuple[PassDecisions, ...] = ()
    history: Mapping[str, RetainedRows] = field(default_factory=dict)
    backfills: Mapping[str, int] = field(default_factory=dict)
    alert_batches: tuple[AlertBatch, ...] = ()

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
            "summaries": [summary.to_json() for summary in self.summaries],
            "views": dict(self.views),
            "sources": dict(self.sources),
            "result_batches": {
                "batch": [batch.batch_id for batch in self.result_batches],
                "clock": [batch.made for batch in self.result_batches],
                "files": [batch.files for batch in self.result_batches],
            },
            "row_files": {
                where: [_encode_row_files(part) for part in parts] for where, parts in self.row_files.items()
            },
            "idle_closed": dict(self.idle_closed),
            "naive": self.naive,
            "backend": self.backend,
            "paces": {stream: _encode_pace(pace) for stream, pace in self.paces.items()},
            "probing_pace": _encode_pace(self.probing_pace),
            "inserting_seconds": self.inserting_seconds,
            **({"history": {s: rows.to_json() for s, rows in self.history.items()}} if self.history else {}),
            **({"backfills": dict(self.backfills)} if self.backfills else {}),
            **({"alert_batches": [list(each) for each in self.alert_batches]} if self.alert_batches else {}),
        }

    @classmethod
    def from_json(
        cls,
        stored: Mapping[str, Any],
        queries: tuple[QueryRecord, ...] = (),
        decisions: tuple[PassDecisions, ...] = (),
    ) -> CommitRecord:
        results = stored["result_batches"]
        return cls(
            queries=queries,
            summaries=tuple(map(SummaryRecord.from_json, stored["summaries"])),
            views=stored["views"],
            sources=stored["sources"],
            result_batches=tuple(map(ResultFiles, results["batch"], results["clock"], results["files"])),
            row_files={
                where: tuple(map(_decode_row_files, parts)) for where, parts in stored["row_files"].items()
            },
            idle_closed=stored["idle_closed"],
            naive=stored["naive"],
            backend=stored["backend"],
            paces={stream: _decode_pace(pace) for stream, pace in stored["paces"].items()},
            probing_pace=_decode_pace(stored["probing_pace"]),
            inserting_seconds=stored["inserting_seconds"],
            decisions=decisions,
            history={s: RetainedRows.from_json(rows) for s, rows in stored.get("history", {}).items()},
            backfills=stored.get("backfills", {}),
            alert_batches=tuple(AlertBatch(*each) for each in stored.get("alert_batches", ())),
        )


def _encode_row_files(part: RowFiles) -> dict[str, Any]:
    return {
        "directory": part.directory,
        "first_batch": part.first,
        "last_batch": part.last,
        "clock": part.made,
        "bytes": part.bytes,
        "sealed": part.is_sealed,
    }


def _decode_row_files(stored: Mapping[str, Any]) -> RowFiles:
    return RowFiles(
        directory=stored["directory"],
        first=stored["first_batch"],
        last=stored["last_batch"],
        made=stored["clock"],
        bytes=stored["bytes"],
        is_sealed=stored["sealed"],
    )


def _encode_pace(pace: PaceSamples) -> dict[str, list[Any]]:
    return {"amount": [amount for amount, _ in pace], "seconds": [seconds for _, seconds in pace]}


def _decode_pace(stored: Mapping[str, list[Any]]) -> PaceSamples:
    return tuple(zip(stored["amount"], stored["seconds"], strict=True))
