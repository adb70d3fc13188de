"""The rows of exploded arrays: which columns are copied for each element."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.backends.local.backend import LocalBackend
from transom.ingest.derived_rows import columns_read, derived_rows
from transom.sql.derived_stream import ELEMENT, ELEMENT_POSITION, Branch, DerivedStream

COLUMNS = {"ts": pa.int64(), "shop": pa.string(), "tags": pa.list_(pa.int32())}
EXPLODED = DerivedStream(
    (*COLUMNS.items(), (ELEMENT_POSITION, pa.int32()), (ELEMENT, pa.int32())),
    "ts",
    (Branch("s", tuple((name, f"`{name}`") for name in COLUMNS), None, "`tags`"),),
)
LONG = 3_000


def exploded(texts: list[str] | None) -> pa.Table:
    schema = pa.schema(list(COLUMNS.items()))
    rows = pa.Table.from_pylist([{"ts": 1, "shop": "a", "tags": list(range(LONG))}, {"ts": 2}], schema)
    return derived_rows(EXPLODED, "s", LocalBackend().frame(rows), COLUMNS, 0, texts).to_table()


def test_an_array_that_nothing_reads_is_not_copied_for_each_of_its_elements() -> None:
    table = exploded(["`ts`", f"`{ELEMENT}` + 1"])
    assert table[ELEMENT].to_pylist() == [*range(LONG), None]
    assert table["ts"].to_pylist() == [1] * LONG + [2]
    assert table["tags"].null_count == table["shop"].null_count == LONG + 1
    assert table.nbytes < 64 * LONG


@pytest.mark.parametrize("texts", [None, ["`ts`", "size(`tags`)", "upper(`shop`)"]], ids=["all", "some"])
def test_columns_that_are_read_have_their_values(texts: list[str] | None) -> None:
    table = exploded(texts).slice(LONG - 1)
    assert table["shop"].to_pylist() == ["a", None]
    assert [tags and len(tags) for tags in table["tags"].to_pylist()] == [LONG, None]


def test_columns_are_found_in_canonical_texts() -> None:
    names = ["a", "A b", "c`d", "e"]
    assert columns_read(names, ["`a`.`x` > 1", "`c``d` + 1", "`a b`"]) == ["a", "A b", "c`d"]
