"""A query of a running server, in the hand of a program elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import pyarrow as pa

from transom.client.connection_errors import NotFound, Refused, ServerError
from transom.client.http import ResultChunk, Wire, given, part
from transom.client.records import Accuracy, Coverage, QueryStatus, read

END = "end"  # the cursor behind all there is
WAIT = 25.0  # seconds that the server holds a question to which there is nothing new
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0  # between attempts, doubling


class RemoteQuery:
    """A registered query: it reads like an engine's own handle."""

    def __init__(self, wire: Wire, info: QueryStatus):
        self._wire, self._path = wire, f"/api/queries/{part(info.name)}"
        self.info = info  # as it was told last
        self.cursor: str | None = None  # behind what was read last

    def __repr__(self) -> str:
        return f"<query {self.name} at {self._wire.url}>"

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def text(self) -> str:
        return self.info.sql

    def status(self) -> QueryStatus:
        """How the query fares now."""
        self.info = read(QueryStatus, self._wire.json("GET", self._path))
        return self.info

    # --- results ---

    def results(self, since: str | None = None) -> pa.Table:
        """All results so far, or those behind a cursor; `query.cursor` is behind them."""
        chunks = [self._chunk(since)]
        while chunks[-1].more:
            chunks.append(self._chunk(chunks[-1].cursor))
        self.cursor = chunks[-1].cursor
        return pa.concat_tables([chunk.table for chunk in chunks])

    def tail(
        self,
        cursor: str | None = None,
        from_start: bool = False,
        patience: float = 300.0,
        away: Callable[[ServerError], None] | None = None,
    ) -> Iterator[pa.Table]:
        """Results as they come, from now on, from a cursor, or from the first; it ends when the query leaves.

        When the server is away, it is asked again and again, for `patience` seconds, and gone on with behind
        the last result that came: none is left out, and none comes twice; `away` is called once when that
        begins. `query.cursor` is behind the table at hand.
        """
        first = self._chunk(cursor if cursor is not None or from_start else END)
        return self._from(first, patience, away)

    def _from(
        self, chunk: ResultChunk, patience: float, away: Callable[[ServerError], None] | None
    ) -> Iterator[pa.Table]:
        columns = chunk.table.schema
        while chunk.table.schema == columns:  # else another query has come by its name
            self.cursor = chunk.cursor
            if chunk.table.num_rows:
                yield chunk.table
            try:
                chunk = self._patiently(chunk, patience, away)
            except NotFound:
                return

    def _patiently(
        self, behind: ResultChunk, patience: float, away: Callable[[ServerError], None] | None
    ) -> ResultChunk:
        """The next chunk, as soon as there is one and a server to ask."""
        pause, since = FIRST_PAUSE, None
        while True:
            try:
                return self._chunk(behind.cursor, None if behind.more else WAIT)
            except Refused:
                raise
            except ServerError as error:
                if since is None and away is not None:
                    away(error)
                since = since or monotonic()
                if monotonic() + pause > since + patience:
                    raise
                sleep(pause * random.uniform(0.5, 1))  # not all who wait come back at once
                pause = min(2 * pause, LONGEST_PAUSE)

    def _chunk(self, cursor: str | None, wait: float | None = None) -> ResultChunk:
        return self._wire.chunk("GET", f"{self._path}/results", cursor=cursor, wait=wait)

    # --- answers now ---

    def prod(self, until: Any = None, at: Any = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """What is known now of this query's open windows: early results."""
        return self._wire.table("POST", f"{self._path}/prod", given(until=until, at=at, where=where))

    def lookup(
        self,
        range: str | int | timedelta | None = None,
        rows: int | None = None,
        *,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The answer now, of a query without SLIDE, for its own window or a shorter one."""
        asked = given(range=range, rows=rows, at=at, where=where)
        return self._wire.table("POST", f"{self._path}/lookup", asked)

    # --- about it ---

    @property
    def on_demand(self) -> bool:
        """Whether the query is without SLIDE: it is looked up, and reports nothing by itself."""
        return self.info.kind == "on demand"

    @property
    def preferred(self) -> bool:
        """Whether the query says WITH PREFERENCE."""
        return self.info.kind == "preferred"

    @property
    def suspended(self) -> str | None:
        """Why the query takes no part in pages any more, or None; as it was told last."""
        return self.info.suspended

    def explain(self, format: str = "text", verbose: bool = False) -> str:
        """How this query is computed, and with which others it shares what: as text, json or mermaid."""
        return self._wire.text(f"{self._path}/explain", format=format, verbose=verbose or None)

    def accuracy(self) -> Accuracy:
        """How good early results have been, against the finals that they became."""
        return read(Accuracy, self._wire.json("GET", f"{self._path}/accuracy"))

    def tune(self, aggressiveness: float | None) -> None:
        """Tell windows when this part of their last slide is still to come; None: when the query says."""
        self._wire.json("PUT", f"{self._path}/aggressiveness", {"value": aggressiveness})

    def coverage(self) -> Coverage:
        """What became of the budget so far, of a query WITH PREFERENCE."""
        return read(Coverage, self._wire.json("GET", f"{self._path}/coverage"))

    def drop(self) -> None:
        """Leave with the next batch."""
        self._wire.json("DELETE", self._path)
