"""The results of queries, by cursor."""

from __future__ import annotations

import pyarrow as pa

from transom.api.conventions import END_CURSOR, START_CURSOR
from transom.api.result_chunk import ResultChunk
from transom.errors import SettingError
from transom.runtime.handles import QueryHandle
from transom.runtime.journal import BEFORE_ANY, Cursor, Journal, JournalQuery
from transom.server.earlier_results import EarlierResults
from transom.server.query_catalog import QueryCatalog
from transom.server.query_description import ON_DEMAND, STANDING
from transom.server.trends import Trend, trend

TREND_ROWS = 4_000  # newest results that a trend is drawn from


class QueryResults:
    """Reads the results of queries from an engine's journal, and older ones from the checkpoint."""

    def __init__(self, journal: Journal, catalog: QueryCatalog, earlier: EarlierResults):
        self.journal, self.catalog, self.earlier = journal, catalog, earlier

    def read(self, handle: QueryHandle, cursor: str | None, limit: int) -> ResultChunk:
        """Results after a cursor, oldest first; `start`, `end` and None (the start) are cursors too."""
        query = self._query(handle)
        if cursor == END_CURSOR:
            return ResultChunk(query.schema.empty_table(), str(self.journal.end()))
        start = Cursor() if cursor is None or cursor == START_CURSOR else Cursor.parse(cursor)
        chunk = self.journal.read(query, start, limit)
        return ResultChunk(chunk.table, str(chunk.cursor), chunk.more)

    def in_memory(self, handle: QueryHandle, cursor: str) -> bool:
        """Whether the results after a cursor are in memory, so that reading them does not block."""
        return cursor == END_CURSOR or (
            cursor != START_CURSOR and self.journal.is_in_memory(self._query(handle), Cursor.parse(cursor))
        )

    def newest(self, handle: QueryHandle, limit: int) -> pa.Table:
        """The newest results, oldest first; some may be read back from the checkpoint."""
        query = self._query(handle)
        newest = self.journal.recent(query, limit, deep=True)
        if newest.num_rows >= limit or not self.journal.is_whole:
            return newest
        # The journal reads back a few batches only; what was read at the start may be more.
        with_earlier = self._with_earlier(query, limit)
        return with_earlier if with_earlier.num_rows > newest.num_rows else newest

    def trend(self, handle: QueryHandle, points: int) -> Trend | None:
        """The first numeric value of the newest final results, if there is one."""
        description = self.catalog.description(handle)
        if description.kind != STANDING:
            return None
        return trend(description, self._with_earlier(self._query(handle), TREND_ROWS), points)

    def _with_earlier(self, query: JournalQuery, limit: int) -> pa.Table:
        """The newest results in memory: those of the journal, and those that were read back at the start."""
        newest = self.journal.recent(query, limit)
        if newest.num_rows >= limit or not self.journal.is_whole:
            return newest
        table = pa.concat_tables([self.earlier.newest(query.identity, query.schema), newest])
        return table.slice(max(table.num_rows - limit, 0))

    def _query(self, handle: QueryHandle) -> JournalQuery:
        description, since = self.catalog.description(handle), handle.since
        if description.kind == ON_DEMAND:
            raise SettingError(f"{handle.name} has no SLIDE and emits no results: look it up")
        return JournalQuery(handle.stored_name, BEFORE_ANY if since is None else since, description.schema)
