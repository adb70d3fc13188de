"""The choice of a backend for `transom query`: small files are read in this process, without starting Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from transom.backends.arrow_frame import local_path
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of
from transom.backends.local.backend import LocalBackend
from transom.backends.local.files import list_local_files
from transom.cli.backend_choice import BackendChoice
from transom.cli.build_engine import declare_pipeline, open_engine
from transom.cli.pipeline import Pipeline, Settings
from transom.errors import SettingError, SQLError
from transom.runtime.engine import Engine
from transom.sql.interpreter.types import NEEDS_SPARK

# Up to so many bytes the local backend is done before Spark would have started.
MAX_TEXT_BYTES = 16_000_000
MAX_PARQUET_BYTES = 256_000_000


@contextmanager
def adhoc_engine(pipeline: Pipeline, choice: BackendChoice) -> Iterator[Engine]:
    """An engine with everything that the pipeline declares; it is stopped at the end of the block."""
    engine = local_engine(pipeline) if choice is BackendChoice.AUTO else None
    if engine is None:
        backend = "local" if choice is BackendChoice.LOCAL else "spark"
        engine = open_engine({**pipeline.engine, "backend": backend})
        try:
            declare_pipeline(engine, pipeline)
        except BaseException:
            engine.stop()
            raise
    try:
        yield engine
    finally:
        engine.stop()


def local_engine(pipeline: Pipeline) -> Engine | None:
    """An engine on the local backend; None if the pipeline needs Spark, or is faster with it."""
    sources = [*pipeline.streams.values(), *pipeline.tables.values()]
    if "master" in pipeline.engine or not all(map(_reads_as_spark, sources)):
        return None
    engine = open_engine({**pipeline.engine, "backend": "local"})
    try:
        declare_pipeline(engine, pipeline)
    except BaseException as error:
        engine.stop()
        if isinstance(error, SQLError) and NEEDS_SPARK in str(error):
            return None
        raise
    return engine


def _reads_as_spark(source: Settings) -> bool:
    """Whether the local backend reads files quickly, and certainly in the same way as Spark."""
    path = source["path"]
    if "://" in path:
        return False
    files = list_local_files(path)  # raises if there are none
    try:
        is_parquet = (source.get("format") or format_of(files)).lower() == "parquet"
        if sum(map(_size, files)) > (MAX_PARQUET_BYTES if is_parquet else MAX_TEXT_BYTES):
            return False
        if not is_parquet and "schema" not in source and len(files) > FILES_TO_INFER_FROM:
            return False
        given = {name: source[name] for name in ("format", "schema", "options") if name in source}
        return LocalBackend().open_files(path, **given).unusual_file() is None
    except SettingError:
        return False  # Spark can read more, and says what is wrong if it can't


def _size(file: str) -> int:
    return os.path.getsize(local_path(file))
