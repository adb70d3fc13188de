"""Checks of the installation: Python, the packages of the extras, Java and Spark."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from transom.backends.java import check_java
from transom.cli.doctor.finding import Finding, fine, problem, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.errors import SettingError
from transom.extras import EXTRA_OF, install_command

OLDEST_PYTHON = (3, 11)
EXTRA_USES = {
    "spark": "the Spark backend",
    "client": "commands for a running server",
    "server": "transom serve",
    "demo": "transom demo",
}


def check_python(subject: DoctorSubject) -> Iterator[Finding]:
    """The version of Python, here and in Spark's workers."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        yield problem("python", f"Python {version} is too old", "install Python 3.11 or newer")
    else:
        yield fine("python", f"Python {version}, {sys.executable}")
    workers = os.environ.get("PYSPARK_PYTHON")
    if workers and subject.needs_spark:
        yield _worker_python(workers)


def _worker_python(workers: str) -> Finding:
    check, here = "python workers", f"{sys.version_info.major}.{sys.version_info.minor}"
    program = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
    try:
        there = subprocess.run(
            [workers, "-c", program], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        return problem(
            check, f"PYSPARK_PYTHON is {workers}, which does not run: {error}", f"set it to {sys.executable}"
        )
    if there.stdout.strip() != here:
        return problem(
            check,
            f"PYSPARK_PYTHON is Python {there.stdout.strip()}, and this is Python {here}",
            "set PYSPARK_PYTHON to a Python of the same minor version",
        )
    return fine(check, f"PYSPARK_PYTHON is Python {here}")


def check_packages(subject: DoctorSubject) -> Iterator[Finding]:
    """The packages of each extra."""
    for extra, use in EXTRA_USES.items():
        missing = [
            module
            for module, of in EXTRA_OF.items()
            if of == extra and importlib.util.find_spec(module) is None
        ]
        check = f"extra {extra}"
        if not missing:
            yield fine(check, f"{use}: all packages are installed")
            continue
        message = f"{use}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        is_needed = extra == "spark" and subject.pipeline is not None and subject.needs_spark
        advice = install_command(missing[0])
        yield problem(check, message, advice) if is_needed else warning(check, message, advice)


def check_java_of_spark(subject: DoctorSubject) -> Iterator[Finding]:
    """The Java that Spark would run on."""
    if not subject.needs_spark:
        yield fine("java", "not needed: the pipeline runs on the local backend")
        return
    if importlib.util.find_spec("pyspark") is None:
        yield fine("java", "not needed: Spark is not installed")
        return
    try:
        java = check_java()
    except SettingError as error:
        message, _, advice = str(error).partition("\n")
        yield problem("java", message.rstrip("."), advice)
        return
    yield fine("java", f"Java {java.version}, {java.path}")


def check_spark(subject: DoctorSubject) -> Iterator[Finding]:
    """The version of Spark, and settings of the environment that change which one runs."""
    if importlib.util.find_spec("pyspark") is None:
        return  # the packages of the extra are a finding already
    version, needed = metadata.version("pyspark"), _needed_spark()
    if needed is not None and version.split(".")[:2] != needed.split("."):
        yield problem(
            "spark", f"Spark {version} is installed, and Transom needs {needed}", install_command("pyspark")
        )
    else:
        yield fine("spark", f"Spark {version}")
    home = os.environ.get("SPARK_HOME")
    if home and not _is_version(Path(home), version):
        yield warning(
            "spark home",
            f"SPARK_HOME is {home}, whose Spark is not {version}",
            "unset SPARK_HOME, or install the same version there",
        )
    configuration = os.environ.get("SPARK_CONF_DIR")
    if configuration and not Path(configuration).is_dir():
        yield warning(
            "spark configuration",
            f"SPARK_CONF_DIR is {configuration}, which is not a directory",
            "create it, or unset SPARK_CONF_DIR",
        )


def _needed_spark() -> str | None:
    """The minor version of Spark that the package asks for, if it is installed with its metadata."""
    try:
        wanted = metadata.requires("transom") or []
    except metadata.PackageNotFoundError:
        return None
    for text in wanted:
        if text.startswith("pyspark=="):
            return text.removeprefix("pyspark==").partition(".*")[0]
    return None


def _is_version(home: Path, version: str) -> bool:
    return any(home.glob(f"jars/spark-core_*-{version}.jar"))


def check_disk(subject: DoctorSubject) -> Iterator[Finding]:
    """The space where a checkpoint or temporary files go."""
    place = Path(subject.checkpoint or os.environ.get("TMPDIR", "/tmp"))
    if "://" in str(subject.checkpoint or ""):
        return
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    message = f"{free / 1e9:,.1f} GB are free at {place}"
    if free < LEAST_FREE:
        yield warning("disk", message, "free some space, or choose another checkpoint")
    else:
        yield fine("disk", message)


LEAST_FREE = 1_000_000_000  # bytes
