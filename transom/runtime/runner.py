"""The life of a batch loop: stepped by its program, run in the background, or drained to the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transom.errors import StateError
from transom.runtime.loop import BatchLoop
from transom.runtime.sources import SparkSource
from transom.runtime.streams import Stream

log = logging.getLogger("transom")


class Runner:
    """Drives a batch loop. Sources of its own are asked for batches; Spark's streams call back with theirs."""

    def __init__(self, loop: BatchLoop, poll_seconds: float):
        self.loop, self.poll_seconds = loop, poll_seconds
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._awake = threading.Event()
        self._error: BaseException | None = None
        self._batch_error: BaseException | None = None  # of a batch that Spark brought
        self._spark: dict[str, StreamingQuery] = {}
        self._turn = 0
        self._draining = False
        self._arriving: set[str] = set()  # Spark's streams with a batch that waits for its turn, or has it

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        return self._error

    # --- in the background ---

    def start(self) -> None:
        if self.running:
            raise StateError("the engine is running already")
        self.loop.open()
        self._stopping.clear()
        self._stopped.clear()
        self._error = self._batch_error = None
        self._start_spark(available_now=False)
        self._thread = threading.Thread(target=self._pump, name="transom", daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        try:
            while not self._stopping.is_set():
                self._awake.clear()
                if not self.batch() and not self._idle_batch():
                    self._raise_spark_error()
                    self._awake.wait(self.poll_seconds)
        except BaseException as error:
            self._error = error
            log.error("the engine stopped: %s", error)
            for query in self._spark.values():
                query.stop()
        finally:
            self._stopped.set()

    def wake(self) -> None:
        """Look for batches now instead of at the next poll."""
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self.wake()
        if self.loop.batch_thread is threading.current_thread():
            # Called by a subscriber: the batch must end first, and with it the wait for it.
            threading.Thread(target=self.stop, name="transom stop", daemon=True).start()
            return
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for query in self._spark.values():
            query.stop()
        self._spark.clear()
        self._stopped.set()

    def await_termination(self, timeout: float | None = None) -> bool:
        if self._thread is None and not self._stopped.is_set():
            raise StateError("the engine was not started")
        ended = self._stopped.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    # --- by the program ---

    def step(self) -> int:
        if self.running:
            raise StateError("the engine is running: it steps by itself")
        self.loop.open()
        batches = 0
        while self.batch():
            batches += 1
        return batches or int(self.loop.idle_batch())

    def drain(self, close: bool | None) -> None:
        was_running = self.running
        if was_running:
            for query in self._spark.values():
                query.processAllAvailable()
            self.stop()
            if self._error is not None:
                raise self._error
        self.loop.open()
        self._stopping.clear()
        self._batch_error, self._draining = None, True
        try:
            for stream in self.loop.streams.values():
                stream.source.hurry()
            if not was_running:
                self._start_spark(available_now=True)
            while self.batch() or any(query.isActive for query in self._spark.values()):
                self._raise_spark_error()
                if self._spark:
                    time.sleep(0.01)
            self._raise_spark_error()
            self.loop.end(
                [s.name for s in self.loop.streams.values() if (s.source.finite if close is None else close)]
            )
            self.loop.control_batch()
        finally:
            self._draining = False
            self.stop()

    # --- batches ---

    def batch(self) -> bool:
        """Run one batch, if there is one to run."""
        loop = self.loop
        with loop.lock:
            intent = loop.pending()
            if intent is not None and intent.stream is not None and intent.reference:
                stream = loop.streams[intent.stream]
                if isinstance(stream.source, SparkSource):
                    return False
                loop.data_batch(stream, intent.reference, self._frame(stream, intent.reference))
                return True
            if intent is None and self._source_batch():
                return True
            loop.close_idle()
            return loop.control_batch()

    def _idle_batch(self) -> bool:
        """Go on with what budgets have put off, unless a batch is on its way."""
        return not self._arriving and self.loop.idle_batch()

    def _source_batch(self) -> bool:
        """A batch of the next stream that has one, of new rows or of rows set aside; streams take turns."""
        streams = list(self.loop.streams.values())
        for _ in streams:
            stream = streams[self._turn % len(streams)]
            self._turn += 1
            taken = stream.source.take(self.loop.state.batch_id + 1)
            if taken is not None:
                frame = self._frame(stream, taken.reference)
                self.loop.data_batch(stream, taken.reference, frame, tuple(taken.control))
                return True
            if not self._arriving and self.loop.lull_batch(stream, self._draining):
                return True
        return False

    @staticmethod
    def _frame(stream: Stream, reference: Mapping[str, Any]) -> DataFrame:
        return stream.timed(stream.source.frame(reference))

    # --- Spark's streams ---

    def _start_spark(self, available_now: bool) -> None:
        for stream in self.loop.streams.values():
            if isinstance(stream.source, SparkSource):
                writer = stream.source.df.writeStream.foreachBatch(self._handler(stream)).option(
                    "checkpointLocation", self.loop.store.path(f"spark/{stream.name}")
                )
                self._spark[stream.name] = (
                    writer.trigger(availableNow=True) if available_now else writer
                ).start()

    def _handler(self, stream: Stream) -> Callable[[DataFrame, int], None]:
        def handle(df: DataFrame, batch: int) -> None:
            if batch <= self.loop.progress.get(stream.name, -1):  # committed before Spark came to note it
                return
            try:
                self._arriving.add(stream.name)  # so that no lull comes before it
                self._spark_batch(stream, {"spark": batch}, stream.timed(rebound(df, self.loop.spark)))
            except BaseException as error:
                self._batch_error = error
                raise
            finally:
                self._arriving.discard(stream.name)

        return handle

    def _spark_batch(self, stream: Stream, reference: Mapping[str, Any], frame: DataFrame) -> None:
        """Run a batch that Spark brought, after the one begun before the last stop, if there is one."""
        loop = self.loop
        with loop.lock:
            mine = (stream.name, reference)
            while (intent := loop.pending()) is not None and (intent.stream, intent.reference) != mine:
                if self._stopping.is_set():
                    raise StateError("the engine is stopping")
                self.wake()
                loop.idle.wait(0.1)
            loop.data_batch(stream, reference, frame)

    def _raise_spark_error(self) -> None:
        for query in self._spark.values():
            error = query.exception()
            if error is not None:
                raise self._batch_error or error


def rebound(df: DataFrame, spark: SparkSession) -> DataFrame:
    """A batch of a stream in the engine's own session: a stream runs in a copy of it that was made when
    the stream was started, and does not know functions registered since."""
    jvm: Any = spark._jvm
    plan = df._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
