"""The spinner, in a real terminal and without one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUERY = "SELECT count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 hour]"
BIDS = ["--from", "bids=examples/bids.json", "--time", "ts"]
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

CASES = [
    ("explain", ["explain", "examples/bids.yaml"], ["Loading Transom", "Planning 2 queries"]),
    ("check", ["check", "examples/bids.yaml"], ["Loading Transom", "Planning 2 queries"]),
    (
        "query of small files",
        ["query", QUERY, *BIDS],
        ["Loading Transom", "Reading the files", "Running the queries"],
    ),
    (
        "query on the local backend",
        ["query", QUERY, *BIDS, "--backend", "local"],
        ["Loading Transom", "Starting the engine", "Running the queries"],
    ),
]


def on_terminal(arguments: list[str]) -> tuple[str, str]:
    """The stdout, which is a pipe, and what a terminal as stderr received."""
    terminal, stderr = pty.openpty()
    received: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(terminal, 4096):
                received.append(part)
        except OSError:  # Linux reports the end so
            pass

    process = subprocess.Popen(
        [sys.executable, "-m", "transom", *arguments],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    os.close(stderr)
    reader = threading.Thread(target=read)
    reader.start()
    stdout, _ = process.communicate(timeout=120)
    reader.join()
    os.close(terminal)
    assert process.returncode == 0, b"".join(received)
    return stdout, b"".join(received).decode()


@pytest.mark.parametrize("arguments, works", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_terminal_shows_what_takes_the_time_and_a_pipe_does_not(
    arguments: list[str], works: list[str]
) -> None:
    stdout, shown = on_terminal(arguments)
    places = [shown.find(f" {work} ...") for work in works]
    assert places == sorted(places) and places[0] >= 0, shown
    assert shown.count(HIDE_CURSOR) == shown.count(SHOW_CURSOR) >= len(works), "each ends before the next"
    assert "\x1b" not in stdout and stdout

    piped = subprocess.run(
        [sys.executable, "-m", "transom", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert piped.stdout == stdout
    assert "..." not in piped.stderr and "\x1b" not in piped.stderr
