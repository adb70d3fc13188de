"""The checkpoint of an engine as people see it: where it is, the last batch in it, and the size of its parts."""

from __future__ import annotations

import os
from dataclasses import dataclass

from transom.runtime.loop import BatchLoop
from transom.state.checkpoint_format import FORMAT_VERSION

MOST_FILES = 100_000  # that are looked at; then the sizes are those of the files seen so far


@dataclass(frozen=True)
class CheckpointPart:
    """A directory of a checkpoint: its name, and the number and size of the files in it."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True)
class CheckpointStatus:
    """A checkpoint after its last batch; the parts of one on another machine are not listed."""

    path: str
    format: int
    batch_id: int  # the last one that was committed; -1: none
    parts: tuple[CheckpointPart, ...] = ()


def checkpoint_status(loop: BatchLoop) -> CheckpointStatus:
    """The status of an engine's checkpoint; listing its files takes a while."""
    root = loop.store.local_path
    parts = () if root is None else tuple(sorted(_parts(root), key=lambda part: -part.bytes))
    return CheckpointStatus(
        loop.store.local_path or loop.store.uri, FORMAT_VERSION, loop.state.batch_id, parts
    )


def _parts(root: str) -> list[CheckpointPart]:
    seen = 0
    sizes: dict[str, list[int]] = {}
    for directory, _, files in os.walk(root):
        part = os.path.relpath(directory, root).split(os.sep)[0]
        for file in files:
            try:
                size = os.stat(os.path.join(directory, file)).st_size
            except OSError:  # a batch has removed it since
                continue
            sizes.setdefault("" if part == "." else part, []).append(size)
            seen += 1
        if seen >= MOST_FILES:
            break
    return [CheckpointPart(name or "files of its own", len(each), sum(each)) for name, each in sizes.items()]
