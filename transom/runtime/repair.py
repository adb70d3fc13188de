"""Repair of a checkpoint while no engine runs on it: what it holds, and what the next engine leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from transom.elements import Register, Summarize
from transom.errors import StateError, near_miss
from transom.runtime.registry import summary_key
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord
from transom.state.json_forms import encode_control
from transom.state.state import State
from transom.storage.file_store import Store
from transom.storage.lease import Lease
from transom.windows.partition_clocks import PARTITIONS, PartitionClocks

REASON = "suspended by transom repair: resume it with query.resume(), or transom resume on a running server"


class Repair:
    """A checkpoint: its last committed batch, and the batch that was begun after it, if there is one."""

    def __init__(self, path: str):
        self.store = Store(path)
        if not self.store.list("state") and not self.store.list("log"):
            raise StateError(f"{path} is not a checkpoint: it has neither a state nor a log")
        self.log = BatchLog(self.store)
        last = self.log.last()
        self.state = last[0] if last else State()
        self.record: CommitRecord | None = last[1] if last else None
        self.pending: BatchIntent | None = self.log.intent(self.state.batch_id + 1)
        self._owns = False

    def lines(self) -> Iterator[str]:
        """What the checkpoint holds, for people."""
        if self.record is None:
            yield "no batch was committed"
        else:
            yield from self._committed_lines(self.record)
        rows = sum(sheet.num_rows for sheet in self.state.sheets.values())
        yield f"state: {rows:,} slices, {len(self.state.stores):,} stores, {len(self.state.refs):,} files of executors"
        if self.pending is None:
            yield "no batch was begun"
            return
        of = f" of {self.pending.stream}" if self.pending.stream is not None else ""
        yield f"begun batch: {self.pending.batch_id}{of}, {dict(self.pending.reference)}"
        for i, element in enumerate(self.pending.control):
            yield f"  control {i}: {encode_control(element)}"
        for key, reason in self.pending.suspended.items():
            yield f"  leaves out {key}: {reason}"

    def _committed_lines(self, record: CommitRecord) -> Iterator[str]:
        yield f"last committed batch: {self.state.batch_id} ({record.backend} backend)"
        for name, progress in record.sources.items():
            if name.endswith(PARTITIONS):
                clocks = len(PartitionClocks.from_json(progress).names)
                yield f"clocks of {name.removesuffix(PARTITIONS)}: {clocks:,}"
            else:
                yield f"source of {name}: {progress}"
        for query in record.queries:
            yield f"query {query.name}: {_state_text(query.suspended, query.paused)}: {' '.join(query.text.split())}"
        for summary in record.summaries:
            yield f"summary {summary.name}: {_state_text(summary.suspended)}: {' '.join(summary.text.split())}"
        for name, text in record.views.items():
            yield f"view {name}: {' '.join(text.split())}"

    def suspend(self, name: str) -> None:
        """Let a query or a summary take no part in batches until it is resumed."""
        record = self.record
        queries = {query.name for query in record.queries} if record is not None else set()
        summaries = {summary.name for summary in record.summaries} if record is not None else set()
        control = self.pending.control if self.pending is not None else ()
        joining = {element.name for element in control if isinstance(element, Register | Summarize)}
        names = queries | summaries | joining
        if name not in names:
            raise StateError(f"the checkpoint has no query or summary named {name}{near_miss(name, names)}")
        self._own()
        if record is not None and name in queries | summaries:
            marked = replace(
                record,
                queries=tuple(
                    replace(query, suspended=REASON) if query.name == name else query
                    for query in record.queries
                ),
                summaries=tuple(
                    replace(summary, suspended=REASON) if summary.name == name else summary
                    for summary in record.summaries
                ),
            )
            self.record = marked
            self.log.rewrite(self.state, marked)
        if self.pending is not None:
            key = summary_key(name) if name in summaries else name
            self._begin(replace(self.pending, suspended={**self.pending.suspended, key: REASON}))

    def skip(self, number: int) -> None:
        """Take a control element out of the batch that was begun."""
        if self.pending is None or not 0 <= number < len(self.pending.control):
            raise StateError(f"the checkpoint has no begun batch with a control element {number}")
        self._own()
        control = self.pending.control
        self._begin(replace(self.pending, control=(*control[:number], *control[number + 1 :])))

    def _begin(self, intent: BatchIntent) -> None:
        self.log.begin(intent)
        self.pending = intent

    def _own(self) -> None:
        """Take the lease, so that an engine that still runs on the checkpoint stops."""
        if not self._owns:
            self.store.guarded = Lease(self.store).guarded
            self._owns = True


def _state_text(suspended: str | None, paused: bool = False) -> str:
    if suspended is not None:
        return f"suspended ({suspended})"
    return "paused" if paused else "active"
