"""The choice of a backend for `transom query` and `explain`: small files are read, and plans made, without Spark."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from transom.backends.arrow_frame import local_path
from transom.backends.connection import FILE_FORMATS
from transom.backends.delta_table import is_delta
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of
from transom.backends.local.backend import LocalBackend
from transom.backends.local.files import list_local_files
from transom.backends.local.plan_without_spark import PlanningBackend
from transom.cli.backend_choice import BackendChoice
from transom.cli.build_engine import built_engine, declare_pipeline, open_engine
from transom.cli.pipeline import Pipeline, Settings
from transom.cli.spinner import spinner
from transom.errors import BackendLimitError, SettingError, SQLError
from transom.plan.explain.text_parts import counted
from transom.runtime.engine import Engine
from transom.sql.interpreter.types import NEEDS_SPARK
from transom.storage.file_store import Store
from transom.storage.lease import lease_holder

log = logging.getLogger("transom")

# Up to so many bytes the local backend is done before Spark would have started.
MAX_TEXT_BYTES = 16_000_000
MAX_PARQUET_BYTES = 256_000_000
MAX_CHECKED_QUERIES = 500


@contextmanager
def adhoc_engine(pipeline: Pipeline, choice: BackendChoice) -> Iterator[Engine]:
    """An engine with everything that the pipeline declares; it is stopped at the end of the block."""
    engine = None
    if choice is BackendChoice.AUTO:
        with spinner("Reading the files"):
            engine = local_engine(pipeline)
    if engine is None:
        backend = "local" if choice is BackendChoice.LOCAL else "spark"
        with spinner("Starting Spark" if backend == "spark" else "Starting the engine"):
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


@contextmanager
def planning_engine(pipeline: Pipeline) -> Iterator[Engine]:
    """An engine that plans everything that the pipeline declares; it is stopped at the end of the block.

    It needs no JVM, unless Spark has to find out the columns of a file, or an expression is known to Spark alone.
    An engine takes over the checkpoint that it opens, so a checkpoint that another engine may be using is left alone.
    """
    pipeline = _without_checkpoint_in_use(pipeline)
    with spinner(f"Planning {counted(len(pipeline.queries), 'query', 'queries')}"):
        engine = _engine_without_spark(pipeline)
    if engine is None:
        with built_engine(pipeline) as engine:
            yield engine
        return
    try:
        yield engine
    finally:
        engine.stop()


def _without_checkpoint_in_use(pipeline: Pipeline) -> Pipeline:
    """The pipeline without its checkpoint and the directories that it writes to, if an engine may be using them."""
    checkpoint = pipeline.engine.get("checkpoint")
    holder = None if checkpoint is None or _has_new_checkpoint(pipeline) else lease_holder(Store(checkpoint))
    if holder is None or holder.is_alive is False or holder.process == os.getpid():
        return pipeline
    log.warning(
        "%s is used by process %d on %s, which goes on: this plan is that of a new checkpoint, without the queries and "
        "views that only the checkpoint has",
        checkpoint,
        holder.process,
        holder.host,
    )
    settings = {name: value for name, value in pipeline.engine.items() if name != "checkpoint"}
    files = {name for name, sink in pipeline.alert_sinks.items() if "file" in sink}
    return replace(
        pipeline,
        engine=settings,
        sinks=_without_directories(pipeline.sinks),
        queries={
            name: replace(query, sinks=_without_directories(query.sinks))
            for name, query in pipeline.queries.items()
        },
        alert_sinks={name: sink for name, sink in pipeline.alert_sinks.items() if name not in files},
        alerts={name: _without_sinks(alert, files) for name, alert in pipeline.alerts.items()},
    )


def _without_directories(sinks: Iterable[Settings]) -> list[Settings]:
    """The sinks that do not write to a directory: one with batches belongs to the run of its checkpoint."""
    return [sink for sink in sinks if "path" not in sink]


def _without_sinks(alert: Settings, names: Collection[str]) -> Settings:
    """An alert that does not name some sinks."""
    if not isinstance(alert.get("sinks"), list):
        return alert
    return {**alert, "sinks": [name for name in alert["sinks"] if name not in names]}


def _engine_without_spark(pipeline: Pipeline) -> Engine | None:
    """The engine on a backend without a JVM; None if the pipeline needs Spark."""
    sources = [*pipeline.streams.values(), *pipeline.tables.values()]
    if pipeline.engine.get("backend", "spark") != "spark" or not all(map(_has_known_columns, sources)):
        return None
    settings = {name: value for name, value in pipeline.engine.items() if name not in ("master", "spark")}
    engine = open_engine({**settings, "backend": PlanningBackend()})
    try:
        declare_pipeline(engine, pipeline)
    except BaseException as error:
        engine.stop()
        is_function_of_spark = isinstance(error, SQLError) and NEEDS_SPARK in str(error)
        if is_function_of_spark or isinstance(error, BackendLimitError):
            return None
        raise
    return engine


def check_before_start(pipeline: Pipeline) -> None:
    """Raise what is wrong with a pipeline before Spark is started, as far as that can be told without it.

    A checkpoint may have views and queries that those of the file need. Thousands of queries would take longer than
    Spark to start.
    """
    if not _has_new_checkpoint(pipeline) or len(pipeline.queries) > MAX_CHECKED_QUERIES:
        return
    settings = {name: value for name, value in pipeline.engine.items() if name != "checkpoint"}
    was_disabled, log.disabled = log.disabled, True  # the engine itself warns
    try:
        with spinner("Checking the pipeline"):
            engine = _engine_without_spark(replace(pipeline, engine=settings))
    finally:
        log.disabled = was_disabled
    if engine is not None:
        engine.stop()


def check_without_spark(pipeline: Pipeline) -> None:
    """The same for a pipeline that is not started, also if it runs on the local backend."""
    if pipeline.engine.get("backend", "spark") == "spark":
        check_before_start(pipeline)
    elif _has_new_checkpoint(pipeline):
        settings = {name: value for name, value in pipeline.engine.items() if name != "checkpoint"}
        with planning_engine(replace(pipeline, engine=settings)):
            pass


def _has_new_checkpoint(pipeline: Pipeline) -> bool:
    checkpoint = pipeline.engine.get("checkpoint")
    return checkpoint is None or ("://" not in checkpoint and not local_path(checkpoint).exists())


def _has_known_columns(source: Settings) -> bool:
    """Whether the columns of a source are known without Spark: they are given, or in plain files."""
    if source.get("push") or is_delta(source.get("format")):
        return True
    if not _is_path_of_files(source):
        return False
    is_here = "://" not in source["path"]
    return is_here and ("schema" in source or _reads_as_spark(source))


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
    if not _is_path_of_files(source):
        return False
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


def _is_path_of_files(source: Settings) -> bool:
    """Whether a source is a path, and its format is one of files."""
    return "path" in source and source.get("format", "json").lower() in FILE_FORMATS


def _size(file: str) -> int:
    return os.path.getsize(local_path(file))
