"""Polars: one lazy scan of conditional sums over shared slices, in memory, with two threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.trades import TradingHour

THREADS = 2
CHUNK = 1_000  # queries in a scan: with many more, Polars runs out of memory


def in_polars(
    hour: TradingHour, workload: str, size: int, seed: int = 0, repeats: int = 1, chunk: int = CHUNK
) -> list[float]:
    """Seconds of each repetition, in a separate process: Polars reads its number of threads only once."""
    arguments = [str(hour.directory), workload, str(size), str(seed), str(repeats), str(chunk)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.polars_scan", *arguments],
        env=os.environ | {"POLARS_MAX_THREADS": str(THREADS)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Polars failed:\n{done.stderr}")
    return json.loads(done.stdout)
