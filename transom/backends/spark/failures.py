"""Failures of Spark: what is wrong in one line, and whether a query can be the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.version import __version__ as spark_version

from transom.backends.base import MAX_ERROR_TEXT, error_chain
from transom.backends.spark.scalars import short_message
from transom.errors import CheckpointError, DeadlineError, StateError, WriteError

_STACK = re.compile(r"\s*\n\s*at [\w.$]+\(.*", re.DOTALL)
_EXCEPTION = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ")
_FILE_ERROR = re.compile(
    r"transom\.(?:errors\.(?P<kind>CheckpointError|WriteError)|storage\.framed_file\.MissingFile): "
    r"(?P<message>[^\n]*)"
)
# Spark names the file, except where a damaged value is decoded only when an expression reads it.
_READ_FAILURE = re.compile(
    r"FAILED_READ_FILE|PATH_NOT_FOUND|CANNOT_READ_FILE|FileNotFoundException|\bat org\.apache\.(?:parquet|orc)\."
)
_WORKER_ENDED = "Python worker exited unexpectedly"
_OTHER_RELEASE = (
    "java.lang.IncompatibleClassChangeError",
)  # a method or an interface is not as it was compiled
_EXTERNAL = (
    "java.io.IOException",  # the disk, the network, a file
    "java.io.UncheckedIOException",
    *_OTHER_RELEASE,
)


def failure_text(error: BaseException) -> str:
    """What is wrong, in one line: the message of the innermost cause, without stack traces."""
    if isinstance(error, DeadlineError):
        return str(error)
    if is_fatal_failure(error):
        return "Spark's JVM does not answer any more: it has ended, perhaps for lack of memory"
    causes = list(_java_causes(error))
    texts = [text for cause in causes if (text := cause.getMessage())]
    if any(_WORKER_ENDED in text for text in texts):
        return "a Python worker of Spark has ended: it was killed, perhaps for lack of memory"
    text = texts[-1] if texts else str(error)
    if not texts and causes:
        text = causes[-1].getClass().getSimpleName()
    if "Traceback (most recent call last):" in text:  # of a Python worker: the last line says what it is
        lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
        text = lines[-1]
    if any(_is_a(cause, _OTHER_RELEASE) for cause in causes):
        text = f"a package was built for another release of Spark than {spark_version}: {text}"
    text = short_message(ValueError(_STACK.sub("", text)))
    return _EXCEPTION.sub("", text)[:MAX_ERROR_TEXT] or type(error).__name__


def checkpoint_failure(error: BaseException) -> StateError | None:
    """The error of a task that found a damaged file of the checkpoint, or can't write one; None for any other."""
    found = _FILE_ERROR.search(str(error))
    if found is None:
        return None
    return (WriteError if found["kind"] == "WriteError" else CheckpointError)(found["message"])


def is_external_failure(error: BaseException) -> bool:
    """Whether the source, the disk or the cluster is the cause, and no query can be."""
    if isinstance(error, DeadlineError):  # a cancelled job fails in many ways
        return False
    if any(isinstance(one, OSError | StateError) for one in error_chain(error)) or is_fatal_failure(error):
        return True
    causes = list(_java_causes(error))
    if any(_WORKER_ENDED in (cause.getMessage() or "") for cause in causes):
        return False  # a query's function may have ended it; if none did, the next attempt passes
    return any(_is_a(cause, _EXTERNAL) for cause in causes)


def is_read_failure(error: BaseException) -> bool:
    """Whether Spark could not read an input file: it is gone, damaged, or has other columns."""
    texts = [
        str(error),
        *(f"{cause.getClass().getName()}: {cause.getMessage()}" for cause in _java_causes(error)),
    ]
    return any(_READ_FAILURE.search(text) for text in texts)


def is_fatal_failure(error: BaseException) -> bool:
    """Whether Spark's JVM has ended."""
    return any(
        isinstance(one, Py4JNetworkError | ConnectionRefusedError)
        or (isinstance(one, Py4JError) and "Answer from Java side is empty" in str(one))
        for one in error_chain(error)
    )


def _java_causes(error: BaseException) -> Iterator[Any]:
    """The Java exceptions behind an error, the innermost last."""
    found: Any = None
    for one in error_chain(error):
        if isinstance(one, Py4JJavaError):
            found = one.java_exception
        elif isinstance(one, PySparkException):
            found = getattr(one, "_origin", None)
        if found is not None:
            break
    for _ in range(50):
        if found is None:
            return
        yield found
        found = found.getCause()


def _is_a(cause: Any, names: tuple[str, ...]) -> bool:
    kind = cause.getClass()
    while kind is not None:
        if kind.getName() in names:
            return True
        kind = kind.getSuperclass()
    return False
