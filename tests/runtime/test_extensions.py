"""The worked examples of docs/contributing.md: an aggregate, a sink, a SQL clause and a planner pass."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.aggregates.test_extension import PRODUCT
from tests.engine_factory import EngineFactory
from tests.plan.test_planner import warn_of_large
from tests.runtime.engine_helpers import BIDS, PER_SITE, answers, bids, bids_engine
from transom.aggregates.table import register_aggregate, unregister_aggregate
from transom.backends.base import Sink
from transom.backends.local.backend import LocalBackend
from transom.plan.context import Pass
from transom.plan.passes import PASSES

ROWS = bids((1, 2.0, "12:00:05"), (1, 3.0, "12:00:20"), (2, 5.0, "12:00:40"), (1, 7.0, "12:01:10"))
LATER = bids((2, 1.0, "12:05:00"))
CONTRIBUTING = Path(__file__).parents[2] / "docs/contributing.md"
LONGER = PER_SITE.replace("2 minutes", "5 minutes")


def test_an_engine_runs_a_pass_of_the_program(make_engine: EngineFactory, tmp_path: Path) -> None:
    added = Pass("warn_of_large", partial(warn_of_large, most=1))
    engine, feed = bids_engine(make_engine, tmp_path, passes=(*PASSES, added))
    first = engine.register(PER_SITE, "first")
    engine.register(LONGER, "second")
    alone = engine.register(PER_SITE.replace("GROUP BY", "WHERE price > 3 GROUP BY"), "alone")
    feed.push(ROWS)
    engine.step()
    lines = engine.explain(verbose=True).splitlines()
    place = lines.index("    8. warn_of_large")
    assert lines[place + 1] == "      selection 1: is large (2 queries)"
    decided = [(one.pass_name, one.about, one.chosen) for one in first.decisions()]
    assert decided.count(("warn_of_large", "selection 1", "is large")) == 1
    assert "warn_of_large" in {one.pass_name for one in engine.decisions()}
    assert "warn_of_large" not in {one.pass_name for one in alone.decisions()}


@pytest.fixture
def product() -> Iterator[None]:
    register_aggregate(PRODUCT)
    yield
    unregister_aggregate(PRODUCT.name)


@pytest.mark.usefixtures("product")
def test_an_engine_runs_an_aggregate_of_the_program(make_engine: EngineFactory, tmp_path: Path) -> None:
    text = "SELECT site, product(price) AS p, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(text, "standing")
    on_demand = engine.register("SELECT product(price) AS p FROM bids [RANGE 10 minutes]", "on_demand")
    feed.push(ROWS)
    engine.step()
    assert "product" in engine.explain(verbose=True)
    assert on_demand.lookup().to_pylist()[0]["p"] == math.prod([2.0, 3.0, 5.0, 7.0])
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    standing = engine.query("standing")
    feed.push(LATER)
    engine.step()
    assert answers(standing, "site", "p", "n") == [
        ("11:59", "12:01", 1, 6.0, 2), ("11:59", "12:01", 2, 5.0, 1),
        ("12:00", "12:02", 1, 42.0, 3), ("12:00", "12:02", 2, 5.0, 1),
        ("12:01", "12:03", 1, 7.0, 1),
    ]  # fmt: skip


def test_an_engine_writes_to_the_sink_that_the_documentation_adds() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text[text.index("## Adding a sink") : text.index("## Adding a SQL clause")]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"transom": transom, "Sink": Sink, "LocalBackend": LocalBackend}
    exec(compile(code, CONTRIBUTING.name, "exec"), names)
    tables: dict[int, Any] = {}
    with names["engine"] as engine:
        feed = engine.feed("bids", BIDS, time="ts")
        query = engine.register(PER_SITE, "q")
        query.sink("table", tables=tables)
        feed.push(ROWS)
        engine.step()
        feed.push(LATER)
        engine.step()
        assert sum(table.num_rows for table in tables.values()) == query.results().num_rows > 0


# --- a new SQL clause: the package itself changes -------------------------------------------------

QUERY_WITH_LABEL = """
import transom

with transom.Engine(backend="local") as engine:
    feed = engine.feed("bids", "label string, ts timestamp", time="ts")
    query = engine.register(
        "SELECT label, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY label LABEL 'per minute'"
    )
    feed.push([("a", "2013-01-01 12:00:00"), ("a", "2013-01-01 12:01:00")])
    engine.step()
    print(query.bound.label, query.results()["n"].to_pylist())
    for wrong in ("[RANGE 1 minute SLIDE 1 minute] LABEL 7", "[RANGE 1 minute] LABEL 'per minute'"):
        try:
            engine.check(f"SELECT count(*) AS n FROM bids {wrong}")
        except transom.SQLError as error:
            print(error.message)
"""


def with_changes(text: str, hunks: str) -> str:
    """A text after the hunks of a diff, each of which occurs once."""
    for hunk in hunks.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        assert text.count(before) == 1, before
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] in " +"))
    return text


def test_the_sql_clause_that_the_documentation_adds_can_be_queried(tmp_path: Path) -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    section = text[text.index("## Adding a SQL clause") : text.index("## Adding a planner pass")]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    package = Path(transom.__file__).parent
    shutil.copytree(package, tmp_path / "transom", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "transom/sql/clauses/label.py").write_text(code, encoding="utf-8")
    for change in diff.split("--- ")[1:]:
        name, _, hunks = change.partition("\n")
        file = tmp_path / name
        file.write_text(with_changes(file.read_text(encoding="utf-8"), hunks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", QUERY_WITH_LABEL], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [
        "per minute [1]",
        "LABEL needs a text like 'bids per minute'",
        "LABEL needs SLIDE",
    ], done.stderr
