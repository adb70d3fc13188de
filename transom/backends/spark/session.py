"""Spark sessions: starting a local one, shipping the package, analysing without ANSI mode."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Iterator, Mapping

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from transom.backends.java import check_java
from transom.errors import StateError
from transom.storage.temporary import temporary_directory

ANSI = "spark.sql.ansi.enabled"
UTC_NAMES = ("UTC", "Etc/UTC", "Z", "GMT")
# Spark's own default profile greets on stderr before the log level can be set, and so does the gateway
# unless its logger is named.
_LOGGING = """status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""
# Compiling a projection takes about 10 ms for each of its expressions, which only many rows pay back.
INTERPRETED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.subexpressionElimination.enabled": "false",
}
_ansi_lock = threading.RLock()
_interpreted_lock = threading.Lock()
_interpreted_before: dict[str, str | None] = {}  # the settings to restore
_interpreted_blocks = 0  # how many blocks of `interpreted` are running
_ship_lock = threading.Lock()
_shipped: set[str] = set()


def local_session(name: str = "transom") -> SparkSession:
    """The running session as it is, or a new one on all cores of this machine."""
    return SparkSession.getActiveSession() or start_session(name)


def start_session(
    name: str = "transom", master: str = "local[*]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one on `master` that is quiet and quick with small queries."""
    if SparkContext._active_spark_context is None:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is
    settings = _defaults(master) | dict(config or {})
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    _launch_java(settings | {"spark.master": master, "spark.app.name": name})
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage() or error.java_exception).split("\n")[0]
        raise StateError(f"Spark does not start on {master}: {reason}") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _launch_java(settings: Mapping[str, str]) -> None:
    """Start Spark's JVM, unless it runs, in a session of its own.

    PySpark starts it in the process group of this process. A SIGTERM for the group would end it before the batch that
    it runs. It ends with this process even so: its standard input does.
    """
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _defaults(master: str) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_logging_file().as_uri()}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Each call of a DataFrame would tell the JVM, in several calls, which line of the program it is.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # A query's text is taken as it is: nothing of the environment goes into it.
        "spark.sql.variable.substitute": "false",
        # Batches are small: planning a query again at each shuffle costs more than it saves.
        "spark.sql.adaptive.enabled": "false",
    }
    if master.startswith("local"):
        cores = str(os.cpu_count() or 1)
        settings |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": cores}
    return settings


@cache
def _logging_file() -> Path:
    path = _temporary_directory() / "log4j2.properties"
    path.write_text(_LOGGING)
    return path


def _temporary_directory() -> Path:
    """A new directory that is removed when the process ends."""
    path = temporary_directory()
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def ship(spark: SparkSession) -> None:
    """Send this package to the executors, once per context; a local session shares it already."""
    context = spark.sparkContext
    with _ship_lock:
        if is_local(spark) or context.applicationId in _shipped:
            return
        context.addPyFile(str(_package_zip()))
        _shipped.add(context.applicationId)


def is_local(spark: SparkSession) -> bool:
    """Whether the executors are threads of the driver."""
    master = spark.sparkContext.master or ""
    return master.startswith("local") and not master.startswith("local-cluster")


def session_in_utc(spark: SparkSession) -> bool:
    """Whether a time written without a zone is in UTC."""
    return spark.conf.get("spark.sql.session.timeZone") in UTC_NAMES


@cache
def _package_zip() -> Path:
    package = Path(__file__).parents[2]
    target = _temporary_directory() / "transom.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(package.rglob("*.py")):
            archive.write(source, Path("transom") / source.relative_to(package))
    return target


@contextmanager
def ansi_off(session: SparkSession) -> Iterator[None]:
    """Analyse plans with ANSI mode off; an expression keeps the mode it was analysed with.

    The setting is the session's, so that threads take turns: otherwise one would restore it
    under another's feet.
    """
    with _ansi_lock:
        before = session.conf.get(ANSI)
        session.conf.set(ANSI, "false")
        try:
            yield
        finally:
            session.conf.set(ANSI, before if before is not None else "true")


@contextmanager
def interpreted(session: SparkSession) -> Iterator[None]:
    """Let Spark interpret expressions instead of compiling them.

    The settings are the session's. Threads may overlap: the last one to leave restores them.
    """
    global _interpreted_blocks
    with _interpreted_lock:
        if not _interpreted_blocks:
            for key, value in INTERPRETED.items():
                _interpreted_before[key] = session.conf.get(key, None)
                session.conf.set(key, value)
        _interpreted_blocks += 1
    try:
        yield
    finally:
        with _interpreted_lock:
            _interpreted_blocks -= 1
            for key, before in _interpreted_before.items() if not _interpreted_blocks else ():
                session.conf.unset(key) if before is None else session.conf.set(key, before)
