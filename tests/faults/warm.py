"""Runs the program once, so that processes that are forked from this one have parsed, planned and imported already."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.faults.workload import Workload

with tempfile.TemporaryDirectory(prefix="transom-warm-") as directory:
    Workload("feed").run(Path(directory))
