"""The results of batches before the service started, read back from the checkpoint once for all queries.

A thread reads the batches, the newest first: how many results each query has, when it emitted the last, and
its newest results as far as they fit into memory. Lists and trends show what has been read so far.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import numpy as np
import pyarrow as pa

from transom.errors import TransomError
from transom.runtime.outputs import QUERY_COLUMN, Outputs
from transom.state.commit_record import ResultFiles

log = logging.getLogger("transom")

MOST_ROWS = 2_000  # results of one query that stay in memory
MOST_BYTES = 32 << 20  # of all queries
MOST_JOINED = 256  # queries whose results stay in one table: those that somebody looks at
UNPAUSED = 200  # batches that are read without pauses; then half of the time is left to the engine


class EarlierResults:
    """What the checkpoint has of the results of batches before `until`, by the identity of queries."""

    def __init__(self, outputs: Outputs, until: int):
        self._outputs = outputs
        self._batches = [batch for batch in outputs.result_batches if batch.batch_id < until]
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        # The results of a query are slices of the tables of batches: a table for each would take more memory.
        self._slices: dict[str, list[tuple[pa.Table, int, int]]] = {}  # the newest first
        self._joined: dict[str, tuple[int, pa.Table]] = {}  # of how many slices
        self._kept: Counter[str] = Counter()
        self._bytes = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read, if there is something to read and it was not read yet."""
        if self._batches and self._thread is None:
            self._thread = threading.Thread(target=self._read, name="earlier results", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Wait until everything is read; whether it is."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self._batches

    def count(self, identity: str) -> tuple[int, int | None]:
        """How many results a query has, and when it emitted the last."""
        with self._lock:
            return self._rows.get(identity, 0), self._last.get(identity)

    def newest(self, identity: str, schema: pa.Schema) -> pa.Table:
        """The newest results of a query that are in memory, the oldest of them first."""
        with self._lock:
            slices = list(self._slices.get(identity, ()))
            joined = self._joined.get(identity)
        if joined is None or joined[0] != len(slices):
            parts = [table.slice(start, rows).drop_columns([QUERY_COLUMN]) for table, start, rows in slices]
            alike = [part for part in reversed(parts) if part.schema == schema]
            joined = len(slices), pa.concat_tables([schema.empty_table(), *alike]).combine_chunks()
            with self._lock:
                self._joined[identity] = joined
                while len(self._joined) > MOST_JOINED:
                    del self._joined[next(iter(self._joined))]
        return joined[1] if joined[1].schema == schema else schema.empty_table()

    def _read(self) -> None:
        batches_read = 0
        while self._batches and not self._stopped.is_set():
            batch, begun = self._batches[-1], time.monotonic()
            try:
                for table in self._outputs.batch_tables(batch):
                    self._add(batch, table)
            except (TransomError, OSError, pa.ArrowException) as error:
                if batch in self._outputs.result_batches:  # not deleted meanwhile, by the retention
                    log.warning("results of batch %s can't be read back: %s", batch.batch_id, error)
            self._batches.pop()
            batches_read += 1
            if batches_read > UNPAUSED:
                self._stopped.wait(time.monotonic() - begun)

    def _add(self, batch: ResultFiles, table: pa.Table) -> None:
        """Count the rows of a table, which are grouped by query, and keep them if there is room."""
        names = table[QUERY_COLUMN].combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy(zero_copy_only=False)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1]) if len(codes) else codes[:0]
        counts = np.diff(np.append(starts, len(codes)))
        identities = names.dictionary.to_pylist()
        with self._lock:
            has_room, is_kept = self._bytes < MOST_BYTES, False
            for start, rows in zip(starts.tolist(), counts.tolist(), strict=True):
                identity = identities[codes[start]]
                self._rows[identity] += rows
                self._last.setdefault(identity, batch.made)
                if has_room and self._kept[identity] < MOST_ROWS:
                    self._slices.setdefault(identity, []).append((table, start, rows))
                    self._kept[identity] += rows
                    is_kept = True
            if is_kept:
                self._bytes += table.nbytes
