"""Views of an engine: created and dropped with a batch, and inlined into the queries that read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from transom.elements import CreateView, DropView
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.runtime.loop import BatchLoop
from transom.sql.binding.cascades import views_read
from transom.sql.binding.views import bind_view
from transom.sql.clauses.view import CreateViewStatement, DropViewStatement, read_view_statement

_LISTED = 3  # readers that an error names


@dataclass(frozen=True)
class ViewInfo:
    """A view: its SELECT, the declared stream below it, its columns, and the queries and views that read it.

    `stream` is None, and there are no columns, if the view can't be read because its stream is not declared.
    """

    name: str
    text: str
    stream: str | None = None
    columns: Mapping[str, pa.DataType] = field(default_factory=dict)
    readers: tuple[str, ...] = ()


def run_view_statement(loop: BatchLoop, text: str) -> None:
    """Run CREATE VIEW or DROP VIEW."""
    statement = read_view_statement(text)
    try:
        if isinstance(statement, DropViewStatement):
            remove_view(loop, statement)
        else:
            add_view(loop, statement)
    except SQLError as error:
        if isinstance(statement, CreateViewStatement) and error.text == statement.select:
            shift = text.index(statement.select, statement.end)
            start, end = (None if at is None else at + shift for at in (error.start, error.end))
            raise SQLError(error.message, text, start, end) from None
        raise


def add_view(loop: BatchLoop, statement: CreateViewStatement) -> None:
    """Create a view, or replace one that nothing reads; one that is there with the same text stays as it is."""
    with loop.directory.lock:
        views = loop.directory.views()
        name = _spelled(statement.name, views) or statement.name
        before = views.get(name)
        if before == statement.select or (before is not None and statement.if_missing):
            return
        if before is not None and not statement.replaces:
            raise StateError(
                f"there is a view {name} already, with another text; DROP VIEW or CREATE OR REPLACE VIEW"
            )
        if before is None:
            _check_name(loop, name)
        else:
            _refuse_readers(loop, name, "replaced")
        views[name] = statement.select
        catalog = replace(loop.directory.catalog(), views=views)
        if name in views_read(statement.select, views):
            raise SQLError(f"the view {name} can't read itself", statement.select, 0, len(statement.select))
        registered = loop.directory.readable_queries([statement.select])
        bind_view(name, catalog, loop.backend.scalars, registered)
        loop.directory.push([CreateView(name, statement.select)])


def remove_view(loop: BatchLoop, statement: DropViewStatement) -> None:
    """Drop a view that nothing reads."""
    with loop.directory.lock:
        views = loop.directory.views()
        name = _spelled(statement.name, views)
        if name is None:
            if statement.if_exists:
                return
            raise StateError(f"there is no view named {statement.name}{near_miss(statement.name, views)}")
        _refuse_readers(loop, name, "dropped")
        loop.directory.push([DropView(name)])


def view_infos(loop: BatchLoop) -> dict[str, ViewInfo]:
    """The views by name, with the waiting control applied."""
    catalog = loop.directory.catalog()
    if not catalog.views:
        return {}
    loop.directory.bind()
    registered, infos = loop.directory.readable_queries(loop.directory.views().values()), {}
    for name, text in catalog.views.items():
        infos[name] = ViewInfo(name, text, readers=tuple(loop.directory.view_readers(name)))
        with suppress(SQLError):
            bound = bind_view(name, catalog, loop.backend.scalars, registered)
            infos[name] = replace(infos[name], stream=bound.stream, columns=bound.columns)
    return infos


def refuse_view_names(loop: BatchLoop, names: Iterable[str]) -> None:
    """Refuse queries, streams and tables that have the name of a view."""
    views = loop.directory.views()
    for name in names if views else ():
        if (view := _spelled(name, views)) is not None:
            raise StateError(f"there is a view named {view} already: use another name")


def _check_name(loop: BatchLoop, name: str) -> None:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SettingError(f"not a name: {name!r}; use letters, digits, _, - and .")
    directory = loop.directory
    for what, names in (
        ("stream", loop.declared.streams),
        ("table", loop.declared.versions),
        ("query", directory.texts),
        ("summary", directory.summary_names()),
    ):
        if (taken := _spelled(name, names)) is not None:
            raise StateError(f"there is a {what} named {taken} already: a view needs another name")


def _refuse_readers(loop: BatchLoop, name: str, what: str) -> None:
    readers = loop.directory.view_readers(name)
    if not readers:
        return
    shown = ", ".join(readers[:_LISTED]) + (" and others" if len(readers) > _LISTED else "")
    raise StateError(f"the view {name} is read by {shown} and can't be {what}: drop its readers first")


def _spelled(name: str, names: Iterable[str]) -> str | None:
    """A name of these in its registered spelling; case does not matter."""
    return next((one for one in names if one.casefold() == name.casefold()), None)
