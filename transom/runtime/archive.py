"""What came out of pages, read back: results, and rows that were set apart."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from transom.runtime.ledger import Ledger
from transom.runtime.outputs import Outputs
from transom.runtime.registry import identity
from transom.runtime.sources import TIME_TEXT
from transom.runtime.streams import Stream
from transom.backends.spark.types import to_arrow
from transom.state.state import State


class Archive(Ledger):
    """The ledger with what was made for its queries so far."""

    outputs: Outputs
    state: State
    lock: threading.RLock
    result_pages: list[tuple[int, int]]  # pages that made results, with their readings of the clock

    def results(self, name: str, schema: pa.Schema, since: int) -> pa.Table:
        """A query's results, from the page it joined with."""
        pages = [page for page, _ in self.result_pages if page >= since]
        return self.outputs.read_results(identity(name, since), schema, pages, since)

    def page_results(self, name: str, schema: pa.Schema, since: int, page: int) -> pa.Table:
        """A query's results in one page, without what prods were told."""
        return self.outputs.read_results(identity(name, since), schema, [page])

    def drop_results(self, is_old: Callable[[int, int], bool]) -> None:
        """Forget the results of old pages, told by their number and their reading of the clock."""
        with self.lock:
            for page, at in self.result_pages:
                if is_old(page, at):
                    self.outputs.clear_results(page)
            self.result_pages = [(page, at) for page, at in self.result_pages if not is_old(page, at)]
            self.outputs.drop_told(is_old)

    def apart(self, kind: str, stream: Stream) -> pa.Table:
        """A stream's late or rejected rows."""
        columns = dict(stream.columns)
        if kind == "rejected":  # with what could not be read
            read = to_arrow(stream.source.schema())
            text = {TIME_TEXT: pa.string()} if read[stream.rules.clock.attribute] == pa.string() else {}
            columns = read | columns | text
        schema = pa.schema([*columns.items(), ("reason", pa.string())])
        return self.outputs.read_apart(kind, stream.name, self.state.page, schema)
