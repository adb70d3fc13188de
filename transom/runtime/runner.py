"""What drives a batch loop: its program step by step, a thread in the background, or a drain to the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from transom.backends.base import Frame, StreamingInput
from transom.errors import SettingError, StateError
from transom.ingest.sources import StreamingSource
from transom.ingest.streams import Stream
from transom.runtime.descriptor_shortage import DescriptorShortage
from transom.runtime.loop import BatchLoop
from transom.runtime.write_ahead_log import streaming_checkpoint

log = logging.getLogger("transom")

TENDING_SECONDS = 1.0  # for which a step that has no batch merges and adds up retained rows
REPLAY_SECONDS = 0.02  # for which retained rows are replayed before the sources are asked again


class _Stopping(StateError):
    """The engine is stopped while a batch waits for file descriptors."""

    def __init__(self) -> None:
        super().__init__("the engine is stopping")


class Runner:
    """Drives a batch loop. It asks sources for their batches; streaming sources call back with theirs."""

    def __init__(self, loop: BatchLoop, poll_seconds: float):
        self.loop, self.poll_seconds = loop, poll_seconds
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._awake = threading.Event()
        self._error: BaseException | None = None
        self._batch_error: BaseException | None = None  # of a batch that a streaming source brought
        self._streaming: dict[str, StreamingInput] = {}
        self._turn = 0
        self._draining = False
        self.shortage = DescriptorShortage()
        self._arriving: set[str] = set()  # streaming sources with a batch that waits for its turn, or has it

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
        self._start_streaming(available_now=False)
        self._thread = threading.Thread(target=self._pump, name="transom", daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        try:
            while not self._stopping.is_set():
                self._awake.clear()
                if not self.shortage.retry(self._any_batch, self._pause):
                    self._raise_streaming_error()
                    self._awake.wait(self.poll_seconds)
            self.loop.control_batch()  # what was accepted during the last batch
        except _Stopping:
            pass  # the next start, or the next engine, runs the begun batch again
        except BaseException as error:
            self._error = error
            backend = self.loop.backend
            is_gone = isinstance(error, Exception) and backend.is_fatal(error)
            log.error("the engine stopped: %s", backend.error_text(error) if is_gone else error)
            self._stop_inputs()
        finally:
            self._stopped.set()

    def _any_batch(self) -> bool:
        return self.batch() or self._idle_batch()

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Stopping

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
        self._stop_inputs()
        self._streaming.clear()
        self._stopped.set()

    def _stop_inputs(self) -> None:
        """Stop the inputs of the backend; those of a backend that has ended did, too."""
        for input in self._streaming.values():
            try:
                input.stop()
            except Exception as error:
                if not self.loop.backend.is_fatal(error):
                    raise

    def await_termination(self, timeout: float | None = None) -> bool:
        if self._thread is None and not self._stopped.is_set():
            raise StateError("the engine was not started")
        ended = self._stopped.wait(timeout)
        if self._error is not None:
            raise self._error
        return ended

    # --- by the program ---

    def step(self, most: int | None = None, empty: bool = False) -> int:
        if self.running:
            raise StateError("the engine is running: step() is for an engine that was not started")
        if most is not None and most < 1:
            raise SettingError(f"a step is of at least one batch, not {most}")
        self.loop.open()
        batches = 0
        while (most is None or batches < most) and (self.batch() or self._backfilled_batch()):
            batches += 1
        if batches:
            return batches
        until = time.monotonic() + TENDING_SECONDS
        while most is None and self.loop.tend_history() and time.monotonic() < until:
            pass
        if not self.loop.idle_batch():
            if not empty:
                return 0
            self.loop.empty_batch()
        return 1

    def drain(self, close: bool | None) -> None:
        was_running = self.running
        if was_running:
            for input in self._streaming.values():
                input.finish()
            self.stop()
            if self._error is not None:
                raise self._error
        self.loop.open()
        self._stopping.clear()
        self._batch_error, self._draining = None, True
        try:
            for stream in self.loop.declared.streams.values():
                stream.source.hurry()
            if not was_running:
                self._start_streaming(available_now=True)
            while self.shortage.retry(self.batch, self._pause) or any(
                input.active for input in self._streaming.values()
            ):
                self._raise_streaming_error()
                if self._streaming:
                    time.sleep(0.01)
            self._raise_streaming_error()
            while self._backfilled_batch():
                pass
            self.loop.ends.end(
                [
                    s.name
                    for s in self.loop.declared.streams.values()
                    if (s.source.finite if close is None else close)
                ]
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
                stream = loop.declared.streams[intent.stream]
                if isinstance(stream.source, StreamingSource):
                    return False
                loop.data_batch(stream, intent.reference)
                return True
            if intent is None and self._source_batch():
                return True
            loop.ends.close_idle(loop.state)
            return loop.control_batch()

    def _idle_batch(self) -> bool:
        """Resume deferred regions of preference queries, or work on retained rows, unless a batch is arriving."""
        if self._arriving:
            return False
        return self.loop.idle_batch() or self.loop.backfill(REPLAY_SECONDS) or self.loop.tend_history()

    def _backfilled_batch(self) -> bool:
        """Finish the replay of retained rows, and run the batch in which queries that have caught up take part."""
        if not self.loop.backfill(REPLAY_SECONDS):
            return False
        while self.loop.backfill(REPLAY_SECONDS):
            pass
        return self.batch()

    def _source_batch(self) -> bool:
        """A batch of the next stream that has one, of new rows or of sidelined ones; streams take turns."""
        streams = list(self.loop.declared.streams.values())
        for _ in streams:
            stream = streams[self._turn % len(streams)]
            self._turn += 1
            batch = stream.source.next(self.loop.state.batch_id + 1)
            if batch is not None:
                self.loop.data_batch(stream, batch.reference, control=tuple(batch.control))
                return True
            if not self._arriving and self.loop.lull_batch(stream, self._draining):
                return True
        return False

    # --- streaming sources ---

    def _start_streaming(self, available_now: bool) -> None:
        for stream in self.loop.declared.streams.values():
            if isinstance(stream.source, StreamingSource):
                checkpoint = self.loop.store.path(streaming_checkpoint(stream.name))
                stream.source.stream.start(self._handler(stream), checkpoint, available_now)
                self._streaming[stream.name] = stream.source.stream

    def _handler(self, stream: Stream) -> Callable[[Frame, int], None]:
        def handle(frame: Frame, number: int) -> None:
            if number <= self.loop.progress.get(stream.name, -1):  # committed before its own system noted it
                return
            try:
                self._arriving.add(stream.name)  # so that no batch of sidelined rows comes before it
                self._streamed_batch(stream, {"stream": number}, stream.with_time(frame))
            except BaseException as error:
                self._batch_error = error
                raise
            finally:
                self._arriving.discard(stream.name)

        return handle

    def _streamed_batch(self, stream: Stream, reference: Mapping[str, Any], frame: Frame) -> None:
        """Run a batch that a streaming source brought, after one that was begun before the last stop."""
        loop = self.loop
        with loop.lock:
            mine = (stream.name, reference)
            while (begun := loop.pending()) is not None and (begun.stream, begun.reference) != mine:
                if self._stopping.is_set():
                    raise StateError("the engine is stopping")
                self.wake()
                loop.idle.wait(0.1)
            self.shortage.retry(lambda: loop.data_batch(stream, reference, frame), self._pause_batch)

    def _pause_batch(self, seconds: float) -> None:
        """Wait without the lock, so that prods and lookups are answered meanwhile."""
        self.loop.idle.wait(seconds)
        if self._stopping.is_set():
            raise _Stopping

    def _raise_streaming_error(self) -> None:
        for input in self._streaming.values():
            error = input.error
            if error is not None:
                raise self._batch_error or error
