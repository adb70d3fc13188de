"""A folder of `.sql` files as queries: one query in each file, named after the file.

Options of a query are YAML in the comment lines at the beginning of its file:

    -- transom:
    --   description: sites with many bids
    --   tags: [bids, sites]
    --   parameters: {limit: 10}
    SELECT site, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site HAVING n > :limit
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from transom.api.parameters import with_parameters
from transom.cli.adhoc_options import split_statements
from transom.cli.remote_commands import is_create_or_drop, is_sql
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.binding.cascades import sources_of

FILE_OPTIONS = ("description", "tags", "partial", "parameters")
_OPENING = "transom:"
_COMMENT = re.compile(r"\s*--(.*)")


@dataclass(frozen=True)
class QueryFile:
    """A query of a folder: its text, with its parameters, and its options."""

    name: str
    path: Path
    text: str
    description: str = ""
    tags: tuple[str, ...] = ()
    partial: bool = False
    reads: tuple[str, ...] = field(default=(), compare=False)  # streams, tables, views and queries


def read_folder(folder: Path) -> dict[str, QueryFile]:
    """The queries of a folder and the folders in it by name; those that others read come before them."""
    if not folder.is_dir():
        raise SettingError(f"{folder} is not a folder")
    files: dict[str, QueryFile] = {}
    for path in sorted(folder.rglob("*.sql")):
        query = read_query_file(path)
        if query.name in files:
            raise SettingError(f"{path} and {files[query.name].path} have the same name: rename one of them")
        files[query.name] = query
    return ordered_by_reads(files)


def read_query_file(path: Path) -> QueryFile:
    """The query of a file; an error names the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: {error}") from None
    try:
        options, body = _split_options(text)
        statements = split_statements(body)
        if len(statements) != 1 or not is_sql(statements[0]) or is_create_or_drop(statements[0]):
            raise SettingError(f"expected one query, SELECT, in the file; it has {_described(statements)}")
        filled = with_parameters(statements[0], options.get("parameters"))
    except SQLError as error:
        raise SQLError(f"{path}: {error.message}", error.text, error.start, error.end) from None
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    return QueryFile(
        path.stem,
        path,
        filled,
        options.get("description", ""),
        tuple(dict.fromkeys(options.get("tags", ()))),
        options.get("partial", False),
        sources_of(filled),
    )


def _described(statements: list[str]) -> str:
    if len(statements) == 1:
        return " ".join(statements[0].split()[:2])
    return f"{len(statements)} statements"


def _split_options(text: str) -> tuple[dict[str, Any], str]:
    """The options in the comment lines at the beginning of a text, and what comes after these lines."""
    lines = text.splitlines()
    end = next(
        (at for at, line in enumerate(lines) if line.strip() and not _COMMENT.fullmatch(line)), len(lines)
    )
    comments = [
        (at, comment[1]) for at, line in enumerate(lines[:end]) if (comment := _COMMENT.fullmatch(line))
    ]
    start = next((at for at, comment in comments if comment.strip() == _OPENING), None)
    if start is None:
        if misplaced := next(
            (comment for _, comment in comments if comment.strip().startswith(_OPENING)), None
        ):
            raise SettingError(
                f"--{misplaced}: write `-- {_OPENING}` alone in its line, and the options below"
            )
        return {}, text
    block = "\n".join(comment for at, comment in comments if at >= start)
    try:
        given = yaml.safe_load(block)
    except yaml.YAMLError as error:
        raise SettingError(f"the options are not YAML: {error}") from None
    if not isinstance(given, Mapping) or list(given) != [_OPENING[:-1]]:
        raise SettingError(f"indent all options below `-- {_OPENING}`, and end the comments after them")
    return _checked_options(given[_OPENING[:-1]] or {}), "\n".join(lines[end:])


def _checked_options(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SettingError(f"the options are a mapping with {', '.join(FILE_OPTIONS)}, not {given!r}")
    kinds = {"description": str, "tags": list, "partial": bool, "parameters": Mapping}
    for name, value in given.items():
        if name not in FILE_OPTIONS:
            raise SettingError(f"there is no option {name}{near_miss(str(name), FILE_OPTIONS)}")
        if not isinstance(value, kinds[name]):
            raise SettingError(f"{name}: expected {_KIND_NAMES[name]}, not {value!r}")
    if not all(isinstance(tag, str) for tag in given.get("tags", ())):
        raise SettingError(f"tags: expected texts, not {given['tags']!r}")
    options = dict(given)
    if "description" in options:
        options["description"] = options["description"].strip()
    return options


_KIND_NAMES = {
    "description": "a text",
    "tags": "a list of texts",
    "partial": "true or false",
    "parameters": "a mapping of names and values",
}


def ordered_by_reads(files: Mapping[str, QueryFile]) -> dict[str, QueryFile]:
    """The queries so that each comes after those that it reads; an error names queries that read each other."""
    by_folded_name = {name.casefold(): name for name in files}
    ordered: dict[str, QueryFile] = {}

    def add(name: str, readers: tuple[str, ...]) -> None:
        if name in readers:
            cycle = " -> ".join((*readers[readers.index(name) :], name))
            raise SettingError(f"queries read each other: {cycle}")
        if name in ordered:
            return
        for source in _of_folder(files[name].reads, by_folded_name):
            add(source, (*readers, name))
        ordered[name] = files[name]

    for name in files:
        add(name, ())
    return ordered


def _of_folder(sources: Iterable[str], by_folded_name: Mapping[str, str]) -> list[str]:
    return [by_folded_name[source.casefold()] for source in sources if source.casefold() in by_folded_name]
