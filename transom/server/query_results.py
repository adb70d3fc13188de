"""The results of queries, by cursor."""

from __future__ import annotations

import pyarrow as pa

from transom.api.conventions import END_CURSOR, START_CURSOR
from transom.api.result_chunk import ResultChunk
from transom.errors import SettingError
from transom.runtime.handles import QueryHandle
from transom.runtime.journal import BEFORE_ANY, Cursor, Journal, JournalQuery
from transom.server.query_catalog import QueryCatalog
from transom.server.query_description import ON_DEMAND, STANDING
from transom.server.trends import Trend, trend

TREND_ROWS = 4_000  # newest results that a trend is drawn from


class QueryResults:
    """Reads the results of queries from an engine's journal."""

    def __init__(self, journal: Journal, catalog: QueryCatalog):
        self.journal, self.catalog = journal, catalog

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
        return self.journal.recent(self._query(handle), limit, deep=True)

    def trend(self, handle: QueryHandle, points: int) -> Trend | None:
        """The first numeric value of the newest final results in memory, if there is one."""
        description = self.catalog.description(handle)
        if description.kind != STANDING:
            return None
        return trend(description, self.journal.recent(self._query(handle), TREND_ROWS), points)

    def _query(self, handle: QueryHandle) -> JournalQuery:
        description, since = self.catalog.description(handle), handle.since
        if description.kind == ON_DEMAND:
            raise SettingError(f"{handle.name} has no SLIDE and emits no results: look it up")
        return JournalQuery(handle.stored_name, BEFORE_ANY if since is None else since, description.schema)
