"""The SQL reference lists what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from tests.sql.trading import Rules
from transom.sql import Catalog, Query, Relation, bind_one
from transom.sql.functions import AGGREGATES, ALLOWED

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "sql.md").read_text()


def section(title: str) -> str:
    return REFERENCE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_aggregates_are_those_of_the_table() -> None:
    rows = [line.split("|")[1] for line in section("Aggregates").splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)\(", " ".join(rows))) == set(AGGREGATES)


def test_the_functions_are_those_of_the_lists() -> None:
    lists = [part.split("\n\n")[1] for part in section("Scalar functions").split("\n### ")[1:]]
    assert set(re.findall(r"`(\w+)`", " ".join(lists))) == ALLOWED


def test_the_example_can_be_run() -> None:
    columns = {
        "site": pa.int32(),
        "price": pa.float64(),
        "kind": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
    }
    catalog = Catalog({"bids": Relation("bids", columns)})
    (example,) = re.findall(r"```sql\n(.*?)```", REFERENCE, re.DOTALL)
    assert isinstance(bind_one(example, catalog, Rules()), Query)
