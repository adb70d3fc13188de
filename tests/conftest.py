"""The backends that tests run on, one Spark session, and Hypothesis set up to be reproducible."""

from __future__ import annotations

import gc
import os
import random
from typing import Any, Iterator

import pytest
from hypothesis import settings

from tests.engine_factory import EngineFactory, backends_of
from tests.worker_scopes import ANY_WORKER, FileScheduling
from transom.backends.base import Backend

settings.register_profile("transom", print_blob=True, derandomize=False, deadline=None)
settings.load_profile("transom")

# Tests end before the JVM's optimizing compiler pays off, and the JVM need not verify Spark's own classes.
# Processes that tests start inherit these.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JVM)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A run without `--hypothesis-seed` gets a seed, so that it can be printed and repeated.

    It is `TRANSOM_SEED` from the environment if that is set, and a new one otherwise.
    """
    config.addinivalue_line("markers", "spark: needs a Spark session (added to tests that use it)")
    config.addinivalue_line("markers", "any_worker: the tests of the file are slow, and share nothing")
    config.addinivalue_line(
        "markers",
        "backends(*names, reason): the backends that a test runs on; the local one if there is no mark",
    )
    if getattr(config.option, "hypothesis_seed", None) is None:
        shared = getattr(config, "workerinput", {}).get("hypothesis_seed")
        drawn = os.environ.get("TRANSOM_SEED") or str(random.SystemRandom().randrange(2**32))
        config.option.hypothesis_seed = drawn if shared is None else shared


def pytest_report_header(config: pytest.Config) -> str:
    """How to repeat this run's random tests."""
    return f"random tests: --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:  # type: ignore[no-untyped-def]
    """Workers of pytest-xdist draw from the same seed."""
    node.workerinput["hypothesis_seed"] = node.config.option.hypothesis_seed


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    """With `--dist loadgroup`, one worker runs all tests of a file, unless they have a group."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that makes engines once for each backend of its `backends` mark."""
    if "make_engine" in metafunc.fixturenames:
        marks = list(metafunc.definition.iter_markers("backends"))
        metafunc.parametrize("make_engine", backends_of(marks), indirect=True, scope="session")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without passes of the garbage collector: what collecting makes stays."""
    gc.disable()
    yield
    gc.enable()


def pytest_collection_finish() -> None:
    """Keep thousands of test items out of every later pass of the garbage collector, and make passes rare."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # the plugin reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the session. One worker of pytest-xdist runs them all: a JVM takes seconds to start."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "spark" in getattr(item, "fixturenames", ()) or parameters.get("make_engine") == "spark":
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("any_worker") is not None:
            item.add_marker(pytest.mark.xdist_group(ANY_WORKER))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A local session that all tests share."""
    from transom.backends.spark.session import start_session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = start_session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def make_engine(request: pytest.FixtureRequest) -> EngineFactory:
    """Makes engines on the backend that the test runs on; only Spark's tests start a session."""
    session = request.getfixturevalue("spark") if request.param == "spark" else None
    return EngineFactory(request.param, session)


@pytest.fixture(scope="session")
def backend(make_engine: EngineFactory) -> Backend:
    """The backend that the test runs on, for tests of what is below the engine."""
    return make_engine.backend


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of random cases: Hypothesis's own, so that one option repeats a whole run."""
    return int(request.config.option.hypothesis_seed)


@pytest.fixture
def spark_without_ansi(spark: Any) -> Iterator[Any]:
    """The session with ANSI mode off and its clocks on UTC, as the engine evaluates scalars."""
    wanted = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
