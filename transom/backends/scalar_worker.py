"""A process that evaluates what may never end: expressions over texts, and functions of the program. It can be killed.

Python's regular expressions hold the interpreter's lock while they match, so that no thread of the same process
could stop them, or answer a request meanwhile.
"""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from transom.backends.program_functions import FailureCount, FunctionParcel
from transom.errors import DeadlineError
from transom.sql.interpreter.scalars import InterpretedScalars

_TEXT_FUNCTIONS = re.compile(
    r"(?i)\b(rlike|regexp|regexp_like|repeat|lpad|rpad|replace|concat|concat_ws|translate|split_part)\b"
)


MOST_MEMORY = 8 << 30  # bytes of address space of the worker


class ExpressionError(Exception):
    """An expression that failed in the worker."""


def needs_worker(text: str) -> bool:
    """Whether the time of an expression may grow faster than the length of its texts.

    >>> needs_worker("`name` RLIKE '(a+)+b'"), needs_worker("`price` * 2 + abs(`volume`)")
    (True, False)
    """
    return _TEXT_FUNCTIONS.search(text) is not None


class ThreadLimit(threading.local):
    """Until when the expressions of a thread may take, by the monotonic clock; None for any time."""

    until: float | None = None

    @contextmanager
    def limited(self, until: float) -> Iterator[None]:
        """Set the limit of this thread in a block."""
        before, self.until = self.until, until
        try:
            yield
        finally:
            self.until = before


class ScalarWorker:
    """Evaluates expressions in another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # prods and batches take turns
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._has_functions: str | None = None  # the parcel that the process has
        self._failures: Counter[str] = Counter()  # of functions of the program

    def prepare(self, functions: FunctionParcel | None = None) -> None:
        """Start the process, if it does not run, and wait until it is ready to call some functions."""
        with self._lock:
            self._connected()
        if functions is not None and self._has_functions != functions.key:
            self.project(pa.table({"x": [0]}), {"x": "x"}, None, functions)

    def failures(self, name: str) -> int:
        """How many calls of a function of the program failed."""
        return self._failures[name.lower()]

    def forget_failures(self, name: str) -> None:
        """Count the failures of a function from zero."""
        self._failures.pop(name.lower(), None)

    def project(
        self,
        table: pa.Table,
        expressions: Mapping[str, str],
        until: float | None,
        functions: FunctionParcel | None = None,
    ) -> pa.Table:
        """A table with one column for each named expression; DeadlineError after `until` (of the monotonic clock)."""
        if not self._lock.acquire(timeout=-1 if until is None else max(until - time.monotonic(), 0)):
            raise DeadlineError("another expression takes too long")
        try:
            connection = self._connected()
            is_new = functions is not None and functions.key != self._has_functions
            self._has_functions = functions.key if functions is not None else self._has_functions
            connection.send(
                (_packed(table), dict(expressions), functions if is_new else functions is not None)
            )
            if not connection.poll(None if until is None else max(until - time.monotonic(), 0)):
                self._kill()
                raise DeadlineError("evaluating its expressions takes longer than the deadline")
            failure, packed, failures = connection.recv()
            self._failures.update(failures)
        except (
            DeadlineError
        ):  # raised in this thread to interrupt it: the answer would be taken for another's
            self._kill()
            raise
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._kill()
            raise ExpressionError("evaluating its expressions ended the worker process") from None
        finally:
            self._lock.release()
        if failure is not None:
            raise ExpressionError(failure)
        return pa.ipc.open_stream(packed).read_all()

    def stop(self) -> None:
        """End the process; the next call starts another."""
        with self._lock:
            self._kill()

    def _connected(self) -> Connection:
        if self._connection is None or self._process is None or self._process.poll() is not None:
            self._kill()
            ours, theirs = socket.socketpair()
            # Not by multiprocessing: its children import the program's main module.
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
            environment = {**os.environ, "PYTHONPATH": path}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
            )
            theirs.close()
            self._connection = Connection(ours.detach())
            self._connection.recv()  # it is ready
        return self._connection

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = self._has_functions = None


def serve_scalars(connection: Connection) -> None:
    """Answer requests until the other end is closed; runs in the worker."""
    scalars = InterpretedScalars()
    scalars.project(
        pa.table({"x": ["a"]}), {"x": "x LIKE '%a' AND x RLIKE 'a'"}
    )  # the parser is slow at first
    connection.send("ready")
    calling: InterpretedScalars | None = None  # with the functions of the program
    while True:
        try:
            packed, expressions, functions = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        failures: Mapping[str, int] = {}
        try:
            if isinstance(functions, FunctionParcel):
                calling = functions.scalars()
            chosen = calling if functions and calling is not None else scalars
            failed = FailureCount(chosen)
            found = chosen.project(pa.ipc.open_stream(packed).read_all(), expressions)
            failures = failed.new()
            answer: tuple[str | None, bytes] = None, _packed(found)
        except Exception as error:
            answer = str(error) or type(error).__name__, b""
        connection.send((*answer, failures))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def limit_memory() -> None:
    """Limit the address space of this process; a lower limit stays."""
    lower = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
    most = min([MOST_MEMORY, *lower])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    limit_memory()
    serve_scalars(Connection(int(sys.argv[1])))
