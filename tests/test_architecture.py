"""docs/architecture.md: the diagram shows the imports, the walks name files that exist and count them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import transom

PACKAGE = Path(transom.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
HEADING = re.compile(r"^### (?P<title>.+): (?P<count>\d+) files$", re.MULTILINE)
ROW = re.compile(r"^\| (?P<number>\d+) \| `(?P<file>[^`]+)` \|", re.MULTILINE)
SQL = "SQL text to a bound query"

# A walk that gets longer asks for a simpler way, not for a higher number.
MOST_FILES = {
    "One row, from a Parquet file to `query.results()`": 25,
    "`query.prod()`": 14,
    "`engine.lookup(sql)`": 14,
    "`POST /api/queries`": 18,
}


def walks() -> dict[str, tuple[int, str]]:
    """The stated count and the text of each walk."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("\n## Four walks\n")[2].partition("\n## ")[0]
    found = list(HEADING.finditer(text))
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    return {
        heading["title"]: (int(heading["count"]), text[heading.end() : end])
        for heading, end in zip(found, ends, strict=True)
    }


WALKS = walks()


def test_there_are_four_walks_and_the_list_that_two_of_them_share():
    assert len(WALKS) == 5 and SQL in WALKS


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_files_that_exist_each_once_and_counts_them(title: str):
    count, text = WALKS[title]
    rows = [(int(row["number"]), row["file"]) for row in ROW.finditer(text)]
    files = [file for _, file in rows]
    assert [number for number, _ in rows] == list(range(1, count + 1))
    assert [file for file in files if not (PACKAGE / file).is_file()] == []
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("title, most", MOST_FILES.items())
def test_a_walk_is_short(title: str, most: int):
    assert WALKS[title][0] <= most


@pytest.mark.parametrize("title", ["`engine.lookup(sql)`", "`POST /api/queries`"])
def test_a_walk_with_sql_states_the_sum(title: str):
    count, text = WALKS[title]
    assert f"With the SQL list, {count + WALKS[SQL][0]}" in text


# --- the diagram of the packages ---------------------------------------------------------------

NODE = re.compile(r"(?P<name>\w+)(\[(?P<label>[^\]]+)\])?$")


def diagram() -> tuple[dict[str, str], set[tuple[str, str]]]:
    """The node of each package, and the arrows between nodes."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("flowchart TB\n")[2].partition("```")[0]
    nodes: dict[str, str] = {}
    arrows = set()
    for line in text.splitlines():
        chain = [match for part in line.split(" --> ") if (match := NODE.match(part.strip()))]
        for match in chain:
            for package in (match["label"] or "").split(", ") if match["label"] else ():
                nodes[package] = match["name"]
        arrows |= {(source["name"], target["name"]) for source, target in pairwise(chain)}
    labelled = set(nodes.values())
    return nodes | {name: name for arrow in arrows for name in arrow if name not in labelled}, arrows


def package_of(parts: tuple[str, ...]) -> str:
    """The package of a module, by the parts of its name below `transom`."""
    if parts[0] != "backends":
        return parts[0]
    return f"backends/{parts[1]}" if parts[1:] and parts[1] in ("spark", "local") else "backends/base"


def imports() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        source = package_of(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transom."):
                yield source, package_of(tuple((node.module or "").split(".")[1:]))


def reachable(start: str, arrows: set[tuple[str, str]]) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        following = {target for source, target in arrows if source == node} - found
        found |= following
        waiting += following
    return found


def test_the_diagram_shows_the_imports_between_packages():
    nodes, arrows = diagram()
    real = {
        (nodes[source], nodes[target])
        for source, target in imports()
        if source in nodes and target in nodes and nodes[source] != nodes[target]
    }
    assert sorted(arrows - real) == []  # every arrow is an import
    assert sorted((a, b) for a, b in real if b not in reachable(a, arrows)) == []  # every import has arrows


def test_the_diagram_has_every_package():
    packages = {package_of((path.parent.name,)) for path in PACKAGE.glob("*/__init__.py")}
    assert sorted(packages - diagram()[0].keys()) == []
