"""A query of a running server."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa

from transom.api.conventions import END_CURSOR
from transom.api.data_frames import ResultFrames
from transom.api.errors import NotFound
from transom.api.formats import ExportFormat, ResultKind
from transom.api.parameters import with_parameters
from transom.api.records import AccuracyInfo, CoverageInfo, EditedQuery, QueryDetail, QueryStatus
from transom.api.result_chunk import ResultChunk
from transom.client.connection_errors import Refused, ServerError
from transom.client.http import HttpClient, path_segment, without_none
from transom.errors import SettingError, near_miss

LONG_POLL_SECONDS = 25.0  # how long the server may hold a request while there is nothing new
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0  # seconds between attempts to reconnect; each pause doubles


class RemoteQuery(ResultFrames):
    """A registered query, with the methods of a local engine's handle."""

    def __init__(self, http: HttpClient, info: QueryStatus):
        self._http, self._path = http, f"/api/queries/{path_segment(info.name)}"
        self.info = info  # the last status that the server reported
        self.cursor: str | None = None  # after the results that were read last

    def __repr__(self) -> str:
        return f"<query {self.name} at {self._http.url}>"

    @property
    def name(self) -> str:
        """The query's name; as of the last status."""
        return self.info.name

    @property
    def text(self) -> str:
        """The query's SQL; as of the last status."""
        return self.info.sql

    def status(self) -> QueryDetail:
        """The query's current status, with the planner's decisions about it."""
        detail = self._http.record(QueryDetail, "GET", self._path)
        self.info = detail
        return detail

    # --- results ---

    def results(self, since: str | None = None) -> pa.Table:
        """All results so far, or those after a cursor; afterwards `query.cursor` is after them."""
        chunks = [self._chunk(since)]
        while chunks[-1].more:
            chunks.append(self._chunk(chunks[-1].cursor))
        self.cursor = chunks[-1].cursor
        return pa.concat_tables([chunk.table for chunk in chunks])

    def latest(self) -> pa.Table:
        """The newest result of each window and group, without early results: corrected, if the query corrects them."""
        body = self._http.content(f"{self._path}/export", format=ExportFormat.ARROW, kind=ResultKind.FINAL)
        return pa.ipc.open_file(body).read_all()

    def export(
        self, path: str | Path = ".", *, format: str | None = None, kind: str = "final", escape: bool = True
    ) -> Path:
        """Write all results that the server retains to a file, and return its path.

        In a directory the file is named after the query. `format` is csv, json, parquet or arrow (default: by the
        file's ending, or csv), and `kind` final, early or all. `escape` makes CSV safe to open in a spreadsheet.
        """
        target = Path(path)
        form = format or (
            target.suffix[1:] if target.suffix and not target.is_dir() else ExportFormat.CSV.value
        )
        if form not in list(ExportFormat):
            hint = near_miss(form, list(ExportFormat))
            raise SettingError(f"unknown format {form!r}: {' or '.join(ExportFormat)}{hint}")
        if kind not in list(ResultKind):
            raise SettingError(f"unknown kind {kind!r}: {' or '.join(ResultKind)}")
        body = self._http.content(
            f"{self._path}/export", format=form, kind=kind, escape=None if escape else "false"
        )
        if target.is_dir():
            safe = re.sub(r"[^\w.-]+", "_", self.name).strip("._") or "query"
            target /= f"{safe}{'' if kind == ResultKind.FINAL else f'-{kind}'}.{form}"
        target.write_bytes(body)
        return target

    def tail(
        self,
        cursor: str | None = None,
        from_start: bool = False,
        patience: float = 300.0,
        on_disconnect: Callable[[ServerError], None] | None = None,
    ) -> Iterator[pa.Table]:
        """Follow results from now on, from a cursor, or from the first; ends when the query is dropped.

        While the server can't be reached, the client retries for `patience` seconds and then continues after
        the last result: no result is lost or repeated. `on_disconnect` is called once per outage.
        `query.cursor` is after the last table that was yielded.
        """
        first = self._chunk(cursor if cursor is not None or from_start else END_CURSOR)
        return self._follow(first, patience, on_disconnect)

    def _follow(
        self, chunk: ResultChunk, patience: float, on_disconnect: Callable[[ServerError], None] | None
    ) -> Iterator[pa.Table]:
        schema = chunk.table.schema
        while chunk.table.schema == schema:  # otherwise another query has taken the name
            self.cursor = chunk.cursor
            if chunk.table.num_rows:
                yield chunk.table
            try:
                chunk = self._next_chunk(chunk, patience, on_disconnect)
            except NotFound:
                return

    def _next_chunk(
        self, previous: ResultChunk, patience: float, on_disconnect: Callable[[ServerError], None] | None
    ) -> ResultChunk:
        """The next chunk; reconnects if the server can't be reached."""
        pause, since = FIRST_PAUSE, None
        while True:
            try:
                return self._chunk(previous.cursor, None if previous.more else LONG_POLL_SECONDS)
            except Refused:
                raise
            except ServerError as error:
                if since is None and on_disconnect is not None:
                    on_disconnect(error)
                since = since or monotonic()
                if monotonic() + pause > since + patience:
                    raise
                sleep(pause * random.uniform(0.5, 1))  # so that not all clients reconnect at once
                pause = min(2 * pause, LONGEST_PAUSE)

    def _chunk(self, cursor: str | None, wait: float | None = None) -> ResultChunk:
        return self._http.chunk(f"{self._path}/results", cursor=cursor, wait=wait)

    # --- answers now ---

    def prod(self, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """Early results of the query's open windows."""
        return self._http.table("POST", f"{self._path}/prod", without_none(until=until, at=at, where=where))

    def lookup(
        self,
        range: str | int | timedelta | None = None,
        rows: int | None = None,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer for one window, as `QueryHandle.lookup` returns it."""
        body = without_none(range=range, rows=rows, at=at, where=where)
        return self._http.table("POST", f"{self._path}/lookup", body)

    def late(self, rows: bool = False, limit: int | None = None) -> pa.Table:
        """The windows that missed rows, and how many each missed; with `rows` the newest rows themselves."""
        if rows:
            return self._http.table("GET", f"{self._path}/late/rows", limit=limit)
        return self._http.table("GET", f"{self._path}/late")

    # --- metadata ---

    @property
    def on_demand(self) -> bool:
        """Whether the query has no SLIDE: it is looked up and emits nothing by itself."""
        return self.info.kind == "on demand"

    @property
    def has_preference(self) -> bool:
        """Whether the query has WITH PREFERENCE."""
        return self.info.kind == "preference"

    @property
    def suspended(self) -> str | None:
        """Why the query is suspended, or None; as of the last status."""
        return self.info.suspended

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """The query's plan and what it shares with others, as text, json or mermaid."""
        return self._http.text(f"{self._path}/explain", format=format, verbose=verbose or None)

    def accuracy(self) -> AccuracyInfo:
        """The accuracy of early results, measured against the finals."""
        return self._http.record(AccuracyInfo, "GET", f"{self._path}/accuracy")

    def tune(self, aggressiveness: float | None) -> None:
        """Emit early results when this share of the slide is left; None restores the setting of the query's text."""
        self._http.json("PUT", f"{self._path}/aggressiveness", {"value": aggressiveness})

    def coverage(self) -> CoverageInfo:
        """How a query WITH PREFERENCE has used its budget so far."""
        return self._http.record(CoverageInfo, "GET", f"{self._path}/coverage")

    # --- changes ---

    def edit(
        self, sql: str, *, parameters: Mapping[str, Any] | None = None, dry_run: bool = False
    ) -> EditedQuery:
        """Give the query another text with the next batch; says what becomes of its open windows.

        With `dry_run` nothing changes.
        """
        body = {"sql": with_parameters(sql, parameters)}
        edited = self._http.record(EditedQuery, "PUT", self._path, body, dry_run="true" if dry_run else None)
        self.info = edited.query
        return edited

    def rename(self, name: str) -> None:
        """Give the query another name with the next batch; results and open windows stay."""
        self._change(name=name)
        self._path = f"/api/queries/{path_segment(name)}"

    def describe(
        self,
        description: str | None = None,
        tags: Iterable[str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> None:
        """Set the description, the tags, or the units of columns for charts; None leaves what there is."""
        self._change(
            description=description,
            tags=None if tags is None else list(tags),
            units=None if units is None else dict(units),
        )

    def pause(self) -> None:
        """Let the query take no part in batches, from the next one on, until it is resumed."""
        self._change(paused=True)

    def _change(self, **changes: Any) -> None:
        self.info = self._http.record(QueryStatus, "PATCH", self._path, without_none(**changes))

    @property
    def paused(self) -> bool:
        """Whether the query is paused; as of the last status."""
        return self.info.paused

    @property
    def description(self) -> str:
        """What the query is for; as of the last status."""
        return self.info.description

    @property
    def tags(self) -> tuple[str, ...]:
        """The query's tags; as of the last status."""
        return self.info.tags

    @property
    def units(self) -> dict[str, str]:
        """The units that were set for charts, by column; as of the last status."""
        return dict(self.info.units)

    def resume(self) -> None:
        """Let a suspended or paused query take part in batches again, from the next one on."""
        self._http.json("POST", f"{self._path}/resume")

    def drop(self) -> None:
        """Drop the query; it leaves with the next batch."""
        self._http.json("DELETE", self._path)
