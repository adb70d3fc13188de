"""Checks of a checkpoint: its format, its lease, and damaged files. Nothing in it is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from transom.cli.doctor.finding import Finding, fine, problem, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.durations import format_instant
from transom.errors import TransomError
from transom.plan.explain.text_parts import counted
from transom.storage.lease import LeaseHolder

SHOWN_DAMAGE = 10


def check_checkpoint(subject: DoctorSubject) -> Iterator[Finding]:
    """The checkpoint of the pipeline file, or the one that is given."""
    path = subject.checkpoint
    if path is None:
        return
    from transom.runtime.checkpoint_health import checkpoint_health

    try:
        health = checkpoint_health(path)
    except (TransomError, OSError) as error:
        yield problem(
            "checkpoint", f"{path} can't be read: {error}", "check the path and the rights of the user"
        )
        return
    if health is None:
        yield _new_checkpoint(path)
        return
    if health.failure is not None:
        message, _, advice = health.failure.partition("; ")
        yield problem(
            "checkpoint", f"{path}: {message}", advice or "transom repair lists what the checkpoint holds"
        )
    else:
        batch = (
            "no batch was committed" if health.batch_id is None else f"batch {health.batch_id} is committed"
        )
        begun = "" if health.begun is None else f", batch {health.begun} is begun and will be run again"
        queries = 0 if health.record is None else len(health.record.queries)
        yield fine("checkpoint", f"{path}: {batch}{begun}, {counted(queries, 'query', 'queries')}")
    yield from _damage_findings(health.damage, health.failure is None, health.files)
    if health.holder is not None:
        yield _lease_finding(health.holder)


def _new_checkpoint(path: str) -> Finding:
    """A path without a checkpoint: whether one can be created there."""
    place = Path(path)
    if "://" in path:
        return fine("checkpoint", f"{path} is empty: the engine begins a new checkpoint")
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        return problem(
            "checkpoint",
            f"{path} can't be created: {place} is not writable",
            "change the rights, or the path",
        )
    return fine("checkpoint", f"{path} is new: the engine creates it")


def _damage_findings(damage: tuple[str, ...], can_continue: bool, files: int) -> Iterator[Finding]:
    if not damage:
        yield fine("files of the checkpoint", f"{counted(files, 'file')} fit their checksums")
    for text in damage[:SHOWN_DAMAGE]:
        message, _, advice = text.partition("; ")
        finding = warning if can_continue else problem
        yield finding(
            "files of the checkpoint", message, advice or "restore the file from a backup of the checkpoint"
        )
    if len(damage) > SHOWN_DAMAGE:
        more = f"{len(damage) - SHOWN_DAMAGE:,} more files are damaged"
        yield problem("files of the checkpoint", more, "restore the checkpoint from a backup")


def _lease_finding(holder: LeaseHolder) -> Finding:
    who = f"process {holder.process} on {holder.host}, since {format_instant(holder.since)}"
    if holder.is_alive:
        return warning(
            "lease",
            f"the process that opened the checkpoint last still runs: {who}",
            "stop it before you start another one, which would take the checkpoint over",
        )
    if holder.is_alive is None:
        return fine("lease", f"the last engine was {who}; whether it still runs can't be told from here")
    return fine("lease", f"no engine has the checkpoint; the last one was {who}")
