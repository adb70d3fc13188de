"""Summaries of an engine: created and dropped with a batch, by statements."""

from __future__ import annotations

from dataclasses import replace

from transom.elements import Summarize, Summary
from transom.errors import SQLError, StateError
from transom.plan.query_cost import check_summary
from transom.runtime.loop import BatchLoop
from transom.sql.clauses.summary import bind_drop, bind_summary, read_statement


def run_summary_statement(loop: BatchLoop, text: str) -> None:
    """Run CREATE SUMMARY or DROP SUMMARY."""
    if (read := read_statement(text)) is None:
        raise SQLError(
            "expected CREATE VIEW, DROP VIEW, CREATE SUMMARY or DROP SUMMARY; queries are registered", text
        )
    with loop.directory.lock:
        catalog = replace(loop.directory.catalog(), queries=frozenset(loop.directory.texts))
        if isinstance(read, Summary):
            summary = bind_summary(text, catalog)
            if summary.name not in catalog.summaries:
                check_summary(summary, loop.planner.strategy.limits)
                loop.directory.push([Summarize(summary.name, text)])
        elif (dropped := bind_drop(text, loop.directory.summary_names())) is not None:
            if users := loop.directory.users(dropped.name):
                raise StateError(f"{dropped.name} is read by {', '.join(users[:3])}: drop that first")
            loop.directory.push([dropped])
