"""Input files as the driver sees them: of this machine, or of any file system that Hadoop knows."""

from __future__ import annotations

import io
from typing import Any, BinaryIO, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from transom.backends.input_files import file_version

LOCAL_SCHEME = "file:"
_BUFFER = 1 << 16  # bytes; each read is a call of the JVM


def open_hadoop_file(spark: SparkSession, file: str) -> BinaryIO:
    """Open a file for reading; FileNotFoundError if there is none."""
    if file.startswith(LOCAL_SCHEME):
        return open(local_part(file), "rb")
    return cast(BinaryIO, io.BufferedReader(HadoopFile(spark, file), _BUFFER))


def hadoop_version(spark: SparkSession, file: str) -> tuple[int, int] | None:
    """When a file was modified, in milliseconds, and its size; None if there is no such file."""
    if file.startswith(LOCAL_SCHEME):
        return file_version(local_part(file))
    _, system, path = _located(spark, file)
    try:
        status = system.getFileStatus(path)
    except Py4JJavaError as error:
        if not _is_missing(error):
            raise
        return None
    return status.getModificationTime(), status.getLen()


def local_part(file: str) -> str:
    """The path of a file of this machine.

    >>> local_part("file:/data/a.json"), local_part("file:///data/a.json")
    ('/data/a.json', '/data/a.json')
    """
    return "/" + file.removeprefix(LOCAL_SCHEME).lstrip("/")


class HadoopFile(io.RawIOBase):
    """A file of one of Hadoop's file systems, as a Python file."""

    def __init__(self, spark: SparkSession, file: str):
        self._jvm, system, path = _located(spark, file)
        try:
            self._size = int(system.getFileStatus(path).getLen())
            self._stream = system.open(path)
        except Py4JJavaError as error:
            if _is_missing(error):
                raise FileNotFoundError(file) from error
            raise
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), self._size - self._position))
        if size:
            self._stream.seek(self._position)
            buffer[:size] = self._jvm.org.apache.commons.io.IOUtils.toByteArray(self._stream, size)
            self._position += size
        return size

    def close(self) -> None:
        if not self.closed and hasattr(self, "_stream"):
            self._stream.close()
        super().close()


def _located(spark: SparkSession, file: str) -> tuple[Any, Any, Any]:
    """The JVM, the file system of a file, and its path there."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(file)
    return jvm, path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _is_missing(error: Py4JJavaError) -> bool:
    return error.java_exception.getClass().getName() == "java.io.FileNotFoundException"
