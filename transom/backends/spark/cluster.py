"""A real Spark standalone cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from transom.backends.java import check_java
from transom.errors import StateError

HOST = "127.0.0.1"
CLUSTER_POLL_SECONDS = 0.1


@contextmanager
def loopback_cluster(
    workers: int = 2, cores: int = 1, memory: str = "1g", patience: float = 120.0
) -> Iterator[str]:
    """The master's URL of a cluster whose workers are registered; its processes end with the block."""
    check_java()
    scratch = Path(tempfile.mkdtemp(prefix="transom-cluster-"))
    port, page = free_ports(2)
    url = f"spark://{HOST}:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, scratch, ignore_errors=True)
        cleanup.callback(_end, processes)
        address = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        processes.append(_start(scratch, "master", "org.apache.spark.deploy.master.Master", address))
        for number in range(workers):
            size = ["--host", HOST, "--webui-port", "0", "--cores", str(cores), "--memory", memory]
            place = ["--work-dir", str(scratch / f"work-{number}")]
            worker = "org.apache.spark.deploy.worker.Worker"
            processes.append(_start(scratch, f"worker-{number}", worker, [*size, *place, url]))
        _await_workers(page, workers, processes, scratch, patience)
        yield url


def _start(scratch: Path, name: str, main: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(scratch / f"local-{name}"),
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    with open(scratch / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), main, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt at the terminal is for the driver, which then ends these
        )


def _await_workers(
    page: int, count: int, processes: list[subprocess.Popen[bytes]], scratch: Path, patience: float
) -> None:
    deadline = time.monotonic() + patience
    while _alive(page) < count:
        ended = next((process for process in processes if process.poll() is not None), None)
        if ended is not None or time.monotonic() > deadline:
            logs = "\n".join(
                path.read_text(errors="replace")[-2000:] for path in sorted(scratch.glob("*.log"))
            )
            raise StateError(f"the cluster did not start:\n{logs}")
        time.sleep(CLUSTER_POLL_SECONDS)


def _alive(page: int) -> int:
    """How many workers the master has, as its own page says."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # not there yet, or only the page for people
        return 0


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End these processes, workers first: a worker ends its executors when it is asked to stop."""
    for process in reversed(processes):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that no process uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
