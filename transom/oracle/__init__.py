"""The naive answer from raw rows, in plain Python: what everything else is compared with."""

from __future__ import annotations

from transom.oracle.joins import join_tables
from transom.oracle.naive import answer, windows_of
from transom.oracle.pages import OracleOutcome, OraclePage, StreamRules
from transom.oracle.scalars import PythonScalars

__all__ = [
    "OracleOutcome",
    "OraclePage",
    "PythonScalars",
    "StreamRules",
    "answer",
    "join_tables",
    "windows_of",
]
