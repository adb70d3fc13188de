"""A server's life: it starts, answers meanwhile, stops cleanly, and outlives its engine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids
from tests.server.server_helpers import backend, error, served_with
from transom.cli.main import USAGE, app
from transom.errors import SettingError
from transom.runtime.write_ahead_log import BatchLog
from transom.server.lifecycle import HttpServer
from transom.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
TOKEN = "correct-horse-battery"


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def test_it_answers_before_there_is_an_engine() -> None:
    http = HttpServer(ServerSettings(port=0))
    try:
        assert httpx.get(f"{http.url}/healthz").json() == {"state": "starting", "failure": None}
        assert httpx.get(f"{http.url}/readyz").status_code == 503
        told = httpx.get(f"{http.url}/api/status")
        assert (error(told), told.headers["retry-after"]) == ((503, "state"), "2")
        answer = httpx.get(http.url, headers={"Accept": "text/html"})
        assert answer.status_code == 503 and "starting" in answer.text
    finally:
        http.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{http.url}/healthz")


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            HttpServer(ServerSettings(port=port))


def test_nothing_listens_without_a_token_beyond_this_machine() -> None:
    with pytest.raises(SettingError, match="the server needs a token"):
        HttpServer(ServerSettings(host="0.0.0.0", port=0))


def test_a_running_engine_is_ready(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, start=True) as back:
        assert back.client.get("/readyz").json()["state"] == "running"
        back.engine.register(PER_SITE, "per_site")
        back.feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:05")))
        told = back.client.get("/api/queries/per_site/results", params={"wait": 30}).json()
        assert told["rows"][0]["n"] == 1


def test_a_server_outlives_its_engine_and_tells_why(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend(make_engine, tmp_path, start=True) as back:
        back.engine.register(PER_SITE, "per_site")

        def fail(*given: object) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(BatchLog, "commit", fail)
        back.feed.push(bids((1, 1.0, "12:00")))
        until(lambda: back.client.get("/healthz").status_code == 503)
        assert back.client.get("/healthz").json() == {"state": "failed", "failure": "the disk is full"}
        assert back.client.get("/readyz").status_code == 503
        assert back.client.get("/api/status").json()["failure"]
        assert 'transom_state{state="failed"} 1.0' in back.client.get("/metrics").text


def test_the_token_is_asked_for_over_real_http(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, served_with(token=TOKEN)) as back:
        assert back.client.get("/api/status").status_code == 200
        assert error(httpx.get(f"{back.served.url}/api/status")) == (401, "unauthorized")
        assert error(httpx.get(f"{back.served.url}/api/status", headers={"Host": "rebound.example"})) == (
            403,
            "forbidden",
        )
        assert httpx.get(f"{back.served.url}/healthz").status_code == 200


def test_slow_calls_leave_room_for_quick_ones(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend(make_engine, tmp_path) as back:
        held = threading.Event()
        monkeypatch.setattr(back.served.service, "lookup_text", lambda *asked: held.wait(30))
        limits = httpx.Limits(max_connections=40)
        with httpx.Client(base_url=back.served.url, timeout=60, limits=limits) as many:
            threads = [
                threading.Thread(target=lambda: many.post("/api/lookup", json={"sql": "x"}))
                for _ in range(30)
            ]
            for thread in threads:
                thread.start()
            assert back.client.get("/api/status").status_code == 200
            assert back.client.get("/api/queries").status_code == 200
            held.set()
            for thread in threads:
                thread.join()


PIPELINE = """
engine: {checkpoint: state, backend: local}
server: {port: 0, dashboard: false, rows: 7}
streams:
  bids: {path: bids, format: json, schema: "site int, price double, ts timestamp", time: ts}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    (tmp_path / "bids").mkdir()
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


class Serving:
    """`transom serve` in a process of its own."""

    def __init__(self, file: Path, *options: str):
        command = [sys.executable, "-m", "transom", "serve", str(file), *options]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "TRANSOM_TOKEN": ""},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = line.removeprefix("transom serves at ").strip()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def test_a_pipeline_is_served_on_spark(pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("backend: local", "backend: spark"))
    serving = Serving(pipeline, "--master", "local[1]")
    try:
        assert serving.url.startswith("http://127.0.0.1:"), serving.process.communicate()
        assert httpx.get(f"{serving.url}/readyz").status_code == 200
        made = httpx.post(f"{serving.url}/api/queries", json={"sql": PER_SITE, "name": "kept"})
        assert made.status_code == 201, made.text
        group = serving.process.pid
        listed = subprocess.run(
            ["ps", "-A", "-o", "ppid=,pgid="], capture_output=True, text=True, check=True
        ).stdout
        processes = [tuple(map(int, line.split())) for line in listed.splitlines()]
        assert (group, group) not in processes, "a signal for the group would end the JVM before its batch"
        assert group in [parent for parent, _ in processes]
        os.killpg(group, signal.SIGTERM)
        _, err = serving.process.communicate(timeout=60)
        assert serving.process.returncode == 0, err
        assert "stopping after the current batch" in err
        assert not any(word in err for word in ("Traceback", "Py4J", "the engine stopped", "error:")), err
    finally:
        serving.process.kill()


def test_a_pipeline_is_served_stopped_and_served_again(pipeline: Path) -> None:
    serving = Serving(pipeline)
    try:
        assert serving.url.startswith("http://127.0.0.1:"), serving.process.communicate()
        with httpx.Client(base_url=serving.url, timeout=60) as client:
            assert client.get("/readyz").status_code == 200
            made = client.post("/api/queries", json={"sql": PER_SITE, "name": "kept"})
            assert made.status_code == 201, made.text
            until(lambda: not client.get("/api/queries/kept").json()["pending"])
            with client.stream("GET", "/api/queries/kept/tail") as tail:
                lines = tail.iter_lines()
                assert next(lines) == "event: columns"
                serving.process.send_signal(signal.SIGTERM)
                assert list(lines)  # it is ended
        assert serving.process.wait(60) == 0
    finally:
        serving.process.kill()
    again = Serving(pipeline, "--generate-token")
    try:
        assert again.process.stderr is not None
        token = again.process.stderr.readline().removeprefix("token: ").strip()
        headers = {"Authorization": f"Bearer {token}"}
        told = httpx.get(f"{again.url}/api/queries", headers=headers).json()
        assert [query["name"] for query in told["queries"]] == ["kept"]  # people registered it
        assert again.end(signal.SIGINT) == 0
    finally:
        again.process.kill()


def test_tokens_of_a_pipeline_have_roles_and_stay_secret(pipeline: Path) -> None:
    place = pipeline.parent
    secrets = {role: f"the-secret-of-{role}-tokens" for role in ("read", "register", "admin")}
    for role, secret in secrets.items():
        (place / role).write_text(secret)
    tokens = "tokens: [{name: ops, role: admin, token_file: admin}]"
    pipeline.write_text(PIPELINE.replace("rows: 7", f"rows: 7, {tokens}"))
    serving = Serving(
        pipeline, "--read-token-file", str(place / "read"), "--register-token-file", str(place / "register")
    )

    def status(role: str, method: str, path: str, **options: Any) -> int:
        headers = {"Authorization": f"Bearer {secrets[role]}"}
        return httpx.request(method, f"{serving.url}{path}", headers=headers, **options).status_code

    try:
        assert serving.url.startswith("http://127.0.0.1:"), serving.process.communicate()
        query, summary = (
            {"sql": PER_SITE, "name": "kept"},
            {"sql": "CREATE SUMMARY s ON bids(site) WITH GRANULARITY '1 minute'"},
        )
        assert [status(role, "GET", "/api/queries") for role in secrets] == [200, 200, 200]
        assert [status(role, "POST", "/api/summaries", json=summary) for role in secrets] == [403, 403, 201]
        assert [status(role, "POST", "/api/queries", json=query) for role in secrets] == [403, 201, 201]
        assert serving.end(signal.SIGTERM) == 0
        out, err = serving.process.communicate()
    finally:
        serving.process.kill()
    files = [file for file in (place / "state").rglob("*") if file.is_file()]
    assert files
    for secret in secrets.values():
        assert secret not in out + err
        assert not any(secret.encode() in file.read_bytes() for file in files)


def test_wrong_settings_are_told_before_anything_is_started(pipeline: Path) -> None:
    for options, says in (
        (["--host", "0.0.0.0"], "the server needs a token"),
        (["--token-file", "/nonexistent"], "can't read the token file"),
    ):
        done = CliRunner().invoke(app, ["serve", str(pipeline), *options], env={"TRANSOM_TOKEN": ""})
        assert (done.exit_code, says in done.stderr) == (USAGE, True), done.stderr
    pipeline.write_text(PIPELINE.replace("port: 0", "prot: 0"))
    done = CliRunner().invoke(app, ["serve", str(pipeline)])
    assert (
        done.exit_code == USAGE and "server.prot: there is no such setting; did you mean port?" in done.stderr
    )
