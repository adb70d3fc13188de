"""The health of a checkpoint: its format, its lease, and every file compared with its checksum. Nothing is changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from transom.errors import CheckpointError, StateError
from transom.runtime.repair import Repair
from transom.state.commit_record import CommitRecord
from transom.storage.file_store import Store
from transom.storage.framed_file import MissingFile
from transom.storage.lease import LeaseHolder, lease_holder
from transom.storage.sealed_directory import is_sealed, sealed_directories, sealed_files

# Transom's own files have a checksum each; of plain files, which are Parquet, the seal of their directory has it.
DIRECTORIES = (
    *("log", "state", "runs", "shards", "results", "prods", "feeds", "replays"),
    *("late", "rejected", "sidelined", "tables"),
)
FRAMED_FILES = (".arrow", ".json")


@dataclass(frozen=True)
class CheckpointHealth:
    """What was found in a checkpoint.

    `failure` is why no engine can continue it: another format, or damage that nothing can replace. `damage` names
    every damaged file, also those that an engine replaces or does not read.
    """

    batch_id: int | None = None  # the last one that was committed
    begun: int | None = None  # the batch that was begun and not committed
    holder: LeaseHolder | None = None
    record: CommitRecord | None = None  # of the last committed batch
    files: int = 0
    failure: str | None = None
    damage: tuple[str, ...] = ()


def checkpoint_health(path: str) -> CheckpointHealth | None:
    """The health of a checkpoint; None if there is none at this path. All its files are read."""
    store = Store(path)
    if not store.list("state") and not store.list("log") and not store.list("lease"):
        return None
    health = _opened(path)
    files = [f"{directory}/{name}" for directory in DIRECTORIES for name in store.files(directory)]
    framed = [name for name in files if name.endswith(FRAMED_FILES)]
    sealed = [each for directory in DIRECTORIES for each in sealed_directories(store, directory)]
    damage = [*_damaged_files(store, framed), *_damaged_directories(store, sealed)]
    absent = set(_missing_outputs(store, health.record))
    if absent:  # a running engine deletes what its next commit does not list
        absent &= set(_missing_outputs(store, _opened(path).record))
    return replace(health, holder=_holder(store), files=len(files), damage=(*damage, *sorted(absent)))


def _opened(path: str) -> CheckpointHealth:
    """What an engine would find if it opened the checkpoint."""
    log = logging.getLogger("transom")
    was_disabled, log.disabled = log.disabled, True  # damage is reported, not logged
    try:
        opened = Repair(path)
    except StateError as error:
        return CheckpointHealth(failure=str(error))
    finally:
        log.disabled = was_disabled
    return CheckpointHealth(
        batch_id=None if opened.record is None else opened.state.batch_id,
        begun=None if opened.pending is None else opened.pending.batch_id,
        record=opened.record,
    )


def _holder(store: Store) -> LeaseHolder | None:
    try:
        return lease_holder(store)
    except (
        CheckpointError,
        TypeError,
        ValueError,
    ):  # the next engine takes the next number, whatever is in the file
        return None


def _damaged_files(store: Store, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        try:
            store.read(name)
        except MissingFile:  # a running engine has deleted it since it was listed
            pass
        except CheckpointError as error:
            yield str(error)


def _damaged_directories(store: Store, directories: Iterable[str]) -> Iterator[str]:
    for directory in directories:
        try:
            sealed_files(store, directory)
        except CheckpointError as error:
            if is_sealed(store, directory):  # otherwise a running engine has deleted it
                yield str(error)


def _missing_outputs(store: Store, record: CommitRecord | None) -> Iterator[str]:
    """The results, late rows and rejected rows that the last commit lists, and that are not there."""
    for batch_id, _, files in () if record is None else record.result_batches:
        directory = f"results/{batch_id:010d}"
        is_complete = is_sealed(store, directory) if files is None else len(store.files(directory)) >= files
        if not is_complete:
            yield f"results of batch {batch_id} are missing in {directory}"
    for rows in (each for listed in (record.row_files.values() if record else ()) for each in listed):
        is_complete = (
            is_sealed(store, rows.directory) if rows.is_sealed else bool(store.files(rows.directory))
        )
        if not is_complete:
            yield f"{rows.directory} is missing"
