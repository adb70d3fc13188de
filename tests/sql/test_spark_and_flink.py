"""Every query of the page about Spark's and Flink's window SQL: some are supported, the others refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "spark-and-flink.md").read_text()


def queries(is_refused: bool) -> Iterator[str]:
    """The queries in the second column of the tables of some sections."""
    for section in PAGE.split("\n## ")[1:]:
        title = section.splitlines()[0]
        if title.startswith("Refused") is is_refused and title != "Nexmark":
            yield from re.findall(r"^\| .*? \| `([^`]*)` \|", section, re.MULTILINE)


@pytest.fixture
def engine(make_engine: EngineFactory, tmp_path: Path) -> transom.Engine:
    engine = make_engine(tmp_path)
    schema = (
        "site int, item string, price double, tags array<string>, note string, seq bigint, "
        "ts timestamp, arrived timestamp"
    )
    engine.feed("bids", schema, time="ts")
    engine.feed("sales", "item string, amount double, ts timestamp", time="ts")
    engine.table("sites", pa.table({"site": pa.array([1], pa.int32()), "name": ["one"]}))
    text = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    engine.register(text, name="per_site")
    return engine


def test_the_page_has_tables() -> None:
    assert len(list(queries(is_refused=False))) > 20
    assert len(list(queries(is_refused=True))) > 10


def test_every_supported_query_can_be_registered(engine: transom.Engine) -> None:
    for number, text in enumerate(queries(is_refused=False)):
        engine.register(text, name=f"q{number}")
    engine.step()


@pytest.mark.parametrize("text", list(queries(is_refused=True)))
def test_every_refused_query_is_refused_with_an_error_that_says_why(
    engine: transom.Engine, text: str
) -> None:
    with pytest.raises(transom.TransomError) as error:
        engine.register(text)
    assert len(str(error.value)) > 10
