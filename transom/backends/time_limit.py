"""A limit of time for what a thread does: DeadlineError is raised in the thread when it has passed."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from transom.errors import DeadlineError

GRACE = 1.0  # seconds after the limit in which an interrupted call may end by itself
AGAIN = 5.0  # seconds until a call that caught the exception is interrupted again


@contextmanager
def interrupting(seconds: float, grace: float = GRACE, again: float = AGAIN) -> Iterator[None]:
    """Raise DeadlineError in this thread when the block takes longer; a native call ends first."""
    thread, lock, is_over = threading.get_ident(), threading.Lock(), threading.Event()
    has_fired = False

    def interrupt() -> None:
        nonlocal has_fired
        patience = seconds + grace
        while not is_over.wait(patience):
            with lock:
                if not is_over.is_set():
                    has_fired = True
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(DeadlineError)
                    )
            patience = again

    threading.Thread(target=interrupt, name="transom deadline", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                is_over.set()
            if has_fired:
                time.sleep(0)  # the exception is raised here, if it was not before
    except DeadlineError as error:
        if error.args:
            raise
        raise DeadlineError(f"it takes longer than the deadline of {seconds:g} s") from None
