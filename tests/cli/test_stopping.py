"""What the commands do if a signal for all processes ends Spark's JVM before the engine."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from transom.backends.local.backend import LocalBackend
from transom.cli import commands
from transom.cli.commands import backend_was_stopped
from transom.runtime.engine import Engine


class LosingEngine:
    """An engine whose backend ends with the signal that stops the process, before the signal is handled."""

    lost_backend = False
    is_stopped = False

    def __init__(self, is_stopping: bool):
        self.is_stopping = is_stopping

    def start(self) -> None:
        pass

    def await_termination(self, timeout: float) -> bool:
        self.lost_backend = True
        if self.is_stopping:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        raise ConnectionRefusedError("111")

    def stop(self) -> None:
        self.is_stopped = True


def test_a_backend_that_is_stopped_first_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    engine: Any = LosingEngine(is_stopping=True)
    with pytest.raises(commands._Stopped):
        commands._run_until_stopped(engine)
    assert engine.is_stopped
    assert capsys.readouterr().err == f"{commands.BACKEND_STOPPED}\n"


def test_a_backend_that_ends_by_itself_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SIGNAL_SECONDS", 0.1)
    engine: Any = LosingEngine(is_stopping=False)
    with pytest.raises(ConnectionRefusedError):
        commands._run_until_stopped(engine)


def test_the_inputs_of_a_backend_that_ended_are_stopped_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError("111")

    engine = Engine(backend="local")
    engine._runner._streaming["bids"] = Gone()  # type: ignore[assignment]
    with pytest.raises(ConnectionRefusedError):
        engine.stop()
    monkeypatch.setattr(
        LocalBackend, "is_fatal", lambda self, error: isinstance(error, ConnectionRefusedError)
    )
    engine.stop()
    assert not engine._runner._streaming


def test_a_failure_with_a_backend_is_none_of_the_signal() -> None:
    engine: Any = LosingEngine(is_stopping=False)
    requested = threading.Event()
    requested.set()
    assert not backend_was_stopped(engine, requested)
