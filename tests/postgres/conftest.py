"""A PostgreSQL server on loopback, and a Spark session with its driver; `make test-postgres` runs these tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.kafka.broker import jars_of
from transom.backends.spark.session import start_session

HOST, USER, PASSWORD = "127.0.0.1", "transom", "pa55word-of-the-test"


def _program(name: str) -> str:
    """A program of the server, which Debian keeps out of the PATH."""
    places = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *map(Path, os.get_exec_path()),
    ]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        raise RuntimeError("these tests need the server: apt-get install postgresql")
    return str(found.resolve())


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    """The JDBC URL of a server that ends with the tests; root may not run one, so another user does."""
    place = Path(tempfile.mkdtemp(prefix="transom-postgres-"))
    (place / "password").write_text(PASSWORD)
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if user:
        for path in (place, place / "password"):
            shutil.chown(path, "postgres", "postgres")
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    data = str(place / "data")
    quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, "cwd": place}
    prepare = [*user, _program("initdb"), "-D", data, "-U", USER, "--auth=scram-sha-256"]
    subprocess.run([*prepare, f"--pwfile={place}/password"], check=True, **quiet)  # type: ignore[call-overload]
    settings = ["-h", HOST, "-p", str(port), "-k", str(place), "-c", "fsync=off"]
    with open(place / "server.log", "wb") as log:
        server = subprocess.Popen(  # type: ignore[call-overload]
            [*user, _program("postgres"), "-D", data, *settings], **(quiet | {"stderr": log})
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection((HOST, port), 1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((place / "server.log").read_text()[-2000:]) from None
                time.sleep(0.2)
        yield f"jdbc:postgresql://{HOST}:{port}/postgres"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_engine() -> Iterator[EngineFactory]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jars = ",".join(jars_of("../postgres/driver.xml"))
    session = start_session("postgres tests", "local[2]", {"spark.jars": jars, "spark.driver.memory": "1g"})
    yield EngineFactory("spark", session)
    session.stop()
