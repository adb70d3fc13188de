"""Naive answers from raw rows, in plain Python: the engine's answers are compared with them."""

from __future__ import annotations

from transom.oracle.batches import LookupAnswer, OracleBatch, OracleLookup, OracleOutcome, OracleStreamRules
from transom.oracle.joins import join_tables
from transom.oracle.naive import answer
from transom.oracle.window_close import windows_of

__all__ = [
    "LookupAnswer",
    "OracleBatch",
    "OracleLookup",
    "OracleOutcome",
    "OracleStreamRules",
    "answer",
    "join_tables",
    "windows_of",
]
