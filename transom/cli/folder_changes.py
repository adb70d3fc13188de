"""What a folder of queries would change on a server, and making these changes.

Only queries with the folder's tag are changed or dropped. A query that has the name of a file and not the tag is a
conflict: somebody else registered it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import StrEnum
from typing import Any

from transom.cli.query_folder import QueryFile
from transom.client.connection import Server
from transom.client.remote_query import RemoteQuery
from transom.errors import SQLError, StateError, TransomError


class Action(StrEnum):
    """What becomes of a query."""

    ADD = "add"
    EDIT = "edit"
    REPLACE = "replace"  # dropped and registered again: what an edit can't change has changed
    DESCRIBE = "describe"  # another description, or other tags
    DROP = "drop"
    LEAVE = "leave"  # it is not in the folder any more, and dropping was not asked for
    CONFLICT = "conflict"
    KEEP = "keep"


CHANGES = (Action.ADD, Action.EDIT, Action.REPLACE, Action.DESCRIBE, Action.DROP)
_SIGNS = {
    Action.ADD: "+",
    Action.EDIT: "~",
    Action.REPLACE: "±",
    Action.DESCRIBE: "~",
    Action.DROP: "-",
    Action.LEAVE: "?",
    Action.CONFLICT: "!",
}
_COUNTED = {
    Action.ADD: "to add",
    Action.EDIT: "to edit",
    Action.REPLACE: "to replace",
    Action.DESCRIBE: "to describe",
    Action.DROP: "to drop",
    Action.LEAVE: "not in the folder",
    Action.CONFLICT: "in conflict",
    Action.KEEP: "unchanged",
}


@dataclass(frozen=True)
class FolderChange:
    """What becomes of one query, in words, and the lines of its text that differ.

    `kept` says whether all open windows of an edited query are kept; None where there is nothing to keep.
    """

    name: str
    action: Action
    message: str
    kept: bool | None = None
    diff: tuple[str, ...] = ()
    file: QueryFile | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "action": self.action,
            "message": self.message,
            "kept": self.kept,
            "diff": list(self.diff),
        }


def planned_changes(
    server: Server, files: Mapping[str, QueryFile], tag: str, prune: bool
) -> list[FolderChange]:
    """What the files of a folder would change; an error names the file whose query is wrong."""
    registered = server.queries()
    changes = [
        FolderChange(name, Action.DROP, "it leaves with the next batch; its open windows are dropped")
        if prune
        else FolderChange(name, Action.LEAVE, "it is not in the folder any more; --prune drops it")
        for name, query in reversed(registered.items())
        if tag in query.tags and name not in files
    ]
    adds = {name for name in files if name not in registered}
    for name, file in files.items():
        with _error_file(file):
            if name in adds:
                changes.append(_added(server, file, adds))
            else:
                changes.append(_changed(registered[name], file, tag))
    return changes


def _added(server: Server, file: QueryFile, adds: set[str]) -> FolderChange:
    """A new query. The server can check its text, unless it reads the results of another new query."""
    folded = {name.casefold() for name in adds}
    first = next((source for source in file.reads if source.casefold() in folded), None)
    if first is not None:
        message = f"it is new; its text is checked after {first} is registered"
        return FolderChange(file.name, Action.ADD, message, file=file)
    server.check(file.text)
    return FolderChange(file.name, Action.ADD, "it is new, and joins with the next batch", file=file)


def _changed(query: RemoteQuery, file: QueryFile, tag: str) -> FolderChange:
    if tag not in query.tags:
        message = (
            f"a query of this name is registered, without the tag {tag}; rename the file, drop the query, or add "
            f"the tag to it: transom describe {query.name} --tag '{tag}'"
        )
        return FolderChange(file.name, Action.CONFLICT, message, file=file)
    diff = tuple(_diff(query.text, file.text))
    if file.partial != query.info.partial:
        verb = "reports" if file.partial else "no longer reports"
        message = (
            f"it {verb} windows that it saw in part: it is registered anew, and open windows are dropped"
        )
        return FolderChange(file.name, Action.REPLACE, message, False, diff, file)
    if query.text != file.text:
        outcome = query.edit(file.text, dry_run=True)
        return FolderChange(file.name, Action.EDIT, outcome.message, outcome.kept, diff, file)
    if (query.description, set(query.tags)) != (file.description, {*file.tags, tag}):
        return FolderChange(
            file.name, Action.DESCRIBE, "it gets another description or other tags", file=file
        )
    state = (
        f"it is suspended: {query.suspended}" if query.suspended else "it is paused" if query.paused else ""
    )
    return FolderChange(file.name, Action.KEEP, state or "nothing changes", file=file)


def _diff(before: str, after: str) -> Iterator[str]:
    """The lines that differ, marked with - and +."""
    lines = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))


@contextmanager
def _error_file(file: QueryFile) -> Iterator[None]:
    """Add the path of a query's file to errors."""
    try:
        yield
    except SQLError as error:
        raise SQLError(f"{file.path}: {error.message}", error.text, error.start, error.end) from None
    except StateError as error:
        raise StateError(f"{file.path}: {error}") from None


def apply_changes(server: Server, changes: list[FolderChange], tag: str) -> Iterator[str]:
    """Make the changes, and yield what was done, one by one.

    Queries leave first, because an edit can be refused while another query reads its results. Then come new and edited
    queries, in the order of `changes`: those that others read come first.
    """
    for change in changes:
        if change.action is Action.DROP:
            server.query(change.name).drop()
            yield f"dropped {change.name}"
    for change in changes:
        if change.file is None or change.action not in CHANGES:
            continue
        with _error_file(change.file):
            yield _make(server, change, change.file, tag)


def _make(server: Server, change: FolderChange, file: QueryFile, tag: str) -> str:
    tags = [*dict.fromkeys((*file.tags, tag))]
    match change.action:
        case Action.EDIT:
            query = server.query(file.name)
            message = f"edited {file.name}: {query.edit(file.text).message}"
        case Action.REPLACE:
            server.query(file.name).drop()
            query = server.register(file.text, file.name, partial=file.partial)
            message = f"replaced {file.name}"
        case Action.ADD:
            query = server.register(file.text, file.name, partial=file.partial)
            message = f"added {file.name}"
        case _:
            query, message = server.query(file.name), f"described {file.name}"
    if (query.description, set(query.tags)) != (file.description, set(tags)):
        try:
            query.describe(file.description, tags)
        except TransomError:
            if change.action is Action.ADD:  # without its tag it would be a conflict
                query.drop()
            raise
    return message


def has_changes(changes: list[FolderChange]) -> bool:
    """Whether something would change on the server."""
    return any(change.action in CHANGES for change in changes)


def conflicts(changes: list[FolderChange]) -> list[str]:
    """The names of queries that somebody else registered."""
    return [change.name for change in changes if change.action is Action.CONFLICT]


def changes_text(changes: list[FolderChange]) -> str:
    """The changes for people, like a diff: what stays as it is is only counted, unless it does not run."""
    shown = [change for change in changes if change.action is not Action.KEEP]
    width = max((len(change.name) for change in shown), default=0)
    lines = []
    for change in shown:
        lines.append(f"{_SIGNS[change.action]} {change.name:{width}}  {change.message}")
        lines += [f"    {line[0]} {line[1:]}" for line in change.diff]
    lines += [
        f"  {change.name}: {change.message}"
        for change in changes
        if change.action is Action.KEEP and change.message != "nothing changes"
    ]
    counts = {action: sum(change.action is action for change in changes) for action in Action}
    total = ", ".join(f"{counts[action]:,} {text}" for action, text in _COUNTED.items() if counts[action])
    return "\n".join([*lines, total or "the folder has no queries"])
