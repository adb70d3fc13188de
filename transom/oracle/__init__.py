"""The naive answer from raw rows, in plain Python: what everything else is compared with."""

from __future__ import annotations

from transom.oracle.batches import Lookup, LookupAnswer, OracleBatch, OracleOutcome, StreamRules
from transom.oracle.joins import join_tables
from transom.oracle.naive import answer
from transom.oracle.window_close import windows_of

__all__ = [
    "Lookup",
    "LookupAnswer",
    "OracleBatch",
    "OracleOutcome",
    "StreamRules",
    "answer",
    "join_tables",
    "windows_of",
]
