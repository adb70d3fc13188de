"""The lease of a checkpoint: an engine that opens it takes the next number, and the engine before it stops.

lease/0000000007.json      the engine with the highest number owns the checkpoint; the file says which it is
lease/lock                 held for a moment while a file gets its name, or a number is taken

The number is a fencing number: an engine checks it whenever one of its files gets its name or is deleted. An engine
that was paused while another one took over finds a higher number, and changes nothing. On a local file system a
lock makes the check and the change one step. Other file systems have no such lock: the check comes right before.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from transom.durations import format_instant
from transom.errors import StateError
from transom.storage.file_store import Store
from transom.storage.write_errors import writable

_DIRECTORY = "lease"


@dataclass(frozen=True)
class LeaseHolder:
    """The engine that has a lease."""

    host: str
    process: int
    since: int  # microseconds since 1970

    @property
    def is_alive(self) -> bool | None:
        """Whether its process runs; None if it is on another machine."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # of another user
            return True
        return True


class Lease:
    """The right of one engine to change a checkpoint."""

    def __init__(self, store: Store):
        """Take the checkpoint over, whoever had it."""
        self._store, self._directory, self._lock = store, "", None
        if store.local_path is not None:
            self._directory = os.path.join(store.local_path, _DIRECTORY)
            with writable(self._directory):
                os.makedirs(self._directory, exist_ok=True)
            self._lock = os.path.join(self._directory, "lock")
        with self._locked():
            before = self._numbers()
            self.number = max(before, default=0) + 1
            store.write(_file(self.number), json.dumps(_holder()).encode())
            store.flush()
            for number in before:
                store.delete(_file(number))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """A moment in which this engine owns the checkpoint; StateError if another one has taken it over."""
        with self._locked():
            if self._numbers() != [self.number]:
                raise StateError(f"another engine has taken over this checkpoint: {self._successor()}")
            yield

    def _successor(self) -> str:
        highest = max(self._numbers(), default=0)
        if highest <= self.number:
            return (
                "its lease is gone; stop this engine, and start one on a checkpoint that nothing else changes"
            )
        holder = _read_holder(self._store, highest)
        return f"process {holder.process} on {holder.host}, at {format_instant(holder.since)}; this one stops"

    def _numbers(self) -> list[int]:
        if self._lock is not None:
            try:
                names = os.listdir(self._directory)
            except FileNotFoundError:
                names = []
        else:
            names = self._store.list(_DIRECTORY)
        return _lease_numbers(names)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = self._opened_lock()
        if descriptor is None:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _opened_lock(self) -> int | None:
        """The open file of the lock; None if there is none, or its directory was deleted."""
        if self._lock is None:
            return None
        with writable(self._lock), suppress(FileNotFoundError):
            return os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        return None


def lease_holder(store: Store) -> LeaseHolder | None:
    """The engine that opened a checkpoint last; None if no engine has. Nothing is changed."""
    numbers = _lease_numbers(store.list(_DIRECTORY))
    return _read_holder(store, numbers[-1]) if numbers else None


def _lease_numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name[:10]) for name in names if name.endswith(".json"))


def _read_holder(store: Store, number: int) -> LeaseHolder:
    return LeaseHolder(**json.loads(store.read(_file(number))))


def _file(number: int) -> str:
    return f"{_DIRECTORY}/{number:010d}.json"


def _holder() -> dict[str, object]:
    return asdict(LeaseHolder(socket.gethostname(), os.getpid(), time.time_ns() // 1000))
