"""The processes that a test has started, and those that they have."""

from __future__ import annotations

from pathlib import Path


def descendants(ancestor: int, text: str) -> list[int]:
    """The processes below one whose command line has a text in it, parents before their children."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(parent, []).append(int(directory.name))
    found, generation = list[int](), [ancestor]
    while generation:
        generation = sorted(child for parent in generation for child in children.get(parent, ()))
        found += [process for process in generation if text in commands[process]]
    return found
