"""`transom plan` and `transom apply`, after their options are parsed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from transom.cli.folder_changes import (
    FolderChange,
    apply_changes,
    changes_text,
    conflicts,
    has_changes,
    planned_changes,
)
from transom.cli.query_folder import read_folder
from transom.client.connection import Server
from transom.errors import SettingError, StateError

CHANGES_EXIT_CODE = 3  # of `transom plan`, if something would change


def folder_tag(folder: Path, tag: str | None) -> str:
    """The tag of the queries that a folder manages: the one that is given, or one with the folder's name.

    >>> folder_tag(Path("alerts"), None), folder_tag(Path("alerts"), "team a")
    ('folder:alerts', 'team a')
    """
    return tag or f"folder:{folder.resolve().name}"


def print_changes(server: Server, folder: Path, tag: str | None, prune: bool, as_json: bool) -> None:
    """Print what a folder would change; the exit code says whether that is something."""
    changes = planned_changes(server, read_folder(folder), folder_tag(folder, tag), prune)
    if as_json:
        print(json.dumps({"changes": [change.as_dict() for change in changes]}, indent=2, ensure_ascii=False))
    else:
        print(changes_text(changes))
    _refuse_conflicts(changes)
    if has_changes(changes):
        raise typer.Exit(CHANGES_EXIT_CODE)


def apply_folder(server: Server, folder: Path, tag: str | None, prune: bool, is_confirmed: bool) -> None:
    """Print what a folder changes, ask, and make the changes."""
    chosen = folder_tag(folder, tag)
    changes = planned_changes(server, read_folder(folder), chosen, prune)
    print(changes_text(changes), flush=True)
    _refuse_conflicts(changes)
    if not has_changes(changes):
        return
    if not is_confirmed:
        _confirm()
    for done in apply_changes(server, changes, chosen):
        print(done, file=sys.stderr, flush=True)


def _refuse_conflicts(changes: list[FolderChange]) -> None:
    if names := conflicts(changes):
        raise StateError(f"others registered {', '.join(names)}: nothing was changed")


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise SettingError("there is no terminal to ask on: give --yes to make these changes")
    if not typer.confirm("make these changes?"):
        raise SettingError("nothing was changed")
