"""Names that streams, tables and queries can get."""

from __future__ import annotations

import re

from transom.errors import SettingError, StateError
from transom.runtime.loop import BatchLoop
from transom.runtime.views import refuse_view_names


def check_declared_name(loop: BatchLoop, name: str) -> None:
    """Refuse a name that a stream or a table can't get."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SettingError(f"not a name: {name!r}; use letters, digits, _, - and .")
    _check_free(loop, name)


def check_query_name(loop: BatchLoop, name: str) -> None:
    """Refuse a name that a query can't get; those of queries may have spaces."""
    if not name or name.strip() != name or not name.isprintable():
        raise SettingError(f"not a name: {name!r}; use printable characters")
    _check_free(loop, name)


def _check_free(loop: BatchLoop, name: str) -> None:
    """Refuse the name of a stream, a table or a view."""
    if name in loop.declared.streams or name in loop.declared.versions:
        kind = "stream" if name in loop.declared.streams else "table"
        raise StateError(f"there is a {kind} named {name} already")
    refuse_view_names(loop, [name])
