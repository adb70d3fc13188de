"""A process without free file descriptors: a batch that fails for this reason is run again after a pause."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

from transom.backends.base import error_chain

log = logging.getLogger("transom")

_Value = TypeVar("_Value")

FIRST_RETRY_PAUSE, LONGEST_RETRY_PAUSE = 0.1, 5.0  # seconds; each pause is twice as long as the one before


def lacks_descriptors(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is that the process or the machine has too many open files.

    >>> lacks_descriptors(OSError(errno.EMFILE, "Too many open files")), lacks_descriptors(OSError("disk"))
    (True, False)
    """
    causes = (one for one in error_chain(error) if isinstance(one, OSError))
    return any(one.errno in (errno.EMFILE, errno.ENFILE) for one in causes)


class DescriptorShortage:
    """Repeats calls while there are no file descriptors, and describes the shortage while it lasts."""

    def __init__(self) -> None:
        self.warning: str | None = None

    def retry(self, call: Callable[[], _Value], pause: Callable[[float], object]) -> _Value:
        """The value of a call; it is repeated, after `pause(seconds)`, while it lacks file descriptors.

        `pause` raises if the call should not be repeated.
        """
        seconds = FIRST_RETRY_PAUSE
        while True:
            try:
                value = call()
            except Exception as error:
                if not lacks_descriptors(error):
                    raise
                self.warning = "a batch waits: the process has too many open files or connections"
                log.warning("%s; the next attempt is in %.1f s (%s)", self.warning, seconds, error)
                pause(seconds)
                seconds = min(2 * seconds, LONGEST_RETRY_PAUSE)
            else:
                self.warning = None
                return value
