"""The operations of frames: one table of rows, the same outcome on every backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.backends.base import Backend, Frame, TableJoin
from transom.sql.query import Join

pytestmark = ON_BOTH

NAN = math.nan
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "site": pa.array([1, 1, 2, None, 2, 1], pa.int32()),
        "price": pa.array([3.0, NAN, None, 1.0, -0.0, 3.0], pa.float64()),
        "name": pa.array(["b", "a", None, "a", "", "b"]),
    }
)
OTHERS = pa.table({"key": pa.array([1, 2, 7], pa.int32()), "city": ["Rome", None, "Ulm"]})

COUNT = {"n": ("count", "*")}
EVERY = {
    "n": ("count", "*"),
    "prices": ("count", "`price`"),
    "least": ("min", "`price`"),
    "most": ("max", "`price`"),
    "first": ("min", "`name`"),
    "last": ("max", "`name`"),
}

MakeFrame = Callable[[pa.Table], Frame]


@pytest.fixture(params=["rows on the driver", "rows of a source"])
def frame_of(request: pytest.FixtureRequest, make_engine: EngineFactory, backend: Backend) -> MakeFrame:
    """A frame of a table: as the engine makes it of pushed rows, or (on Spark, of a DataFrame) of a source."""

    def of_source(table: pa.Table) -> Frame:
        frame = backend.input_of(make_engine.rows(table))
        assert isinstance(frame, Frame)
        return frame

    return backend.frame if request.param == "rows on the driver" else of_source


Operation = Callable[[Frame, Frame], Frame]
OPERATIONS: dict[str, tuple[Operation, list[tuple[Any, ...]]]] = {
    "a filter drops rows for which its condition is null": (
        lambda rows, _: rows.filter("`price` >= 1").project({}, ["id"]),
        [(1,), (2,), (4,), (6,)],
    ),
    "a projection has the kept columns first": (
        lambda rows, _: rows.project({"x": "`id` * 2", "y": "upper(`name`)"}, ["name", "id"]).filter(
            "id < 4"
        ),
        [("b", 1, 2, "B"), ("a", 2, 4, "A"), (None, 3, 6, None)],
    ),
    "a projection of no columns": (lambda rows, _: rows.project({}, []).aggregate({}, COUNT), [(6,)]),
    "an extension replaces columns of the same name": (
        lambda rows, _: (
            rows.extend({"site": "coalesce(`site`, 0)", "twice": "`id` * 2"})
            .filter("id in (1, 4)")
            .project({}, ["id", "site", "twice"])
        ),
        [(1, 1, 2), (4, 0, 8)],
    ),
    "numbers in an order, null where a condition is not true": (
        lambda rows, _: rows.number("n", ["`price`", "`id`"], "`site` IS NOT NULL", 10).project(
            {}, ["id", "n"]
        ),
        [(1, 12), (2, 14), (3, 10), (4, None), (5, 11), (6, 13)],
    ),
    "ranks within a column": (
        lambda rows, _: rows.rank("r", "site", ["-`price`", "`id`"]).project({}, ["id", "r"]),
        [(1, 1), (2, 3), (3, 1), (4, 1), (5, 2), (6, 2)],
    ),
    "ranks with ties": (
        lambda rows, _: rows.rank("r", "site", ["`price`"], ties=True).project({}, ["id", "r"]),
        [(1, 1), (2, 3), (3, 1), (4, 1), (5, 2), (6, 1)],
    ),
    "nulls come first and NaN last": (
        lambda rows, _: (
            rows.extend({"all": "1"}).rank("r", "all", ["`price`", "`id`"]).project({}, ["id", "r"])
        ),
        [(1, 4), (2, 6), (3, 1), (4, 3), (5, 2), (6, 5)],
    ),
    "a union is by name, and what one side lacks is null": (
        lambda rows, others: (
            rows.project({}, ["site", "id"])
            .filter("id = 1")
            .union(others.project({"id": "CAST(`key` AS BIGINT)"}, ["city"]))
        ),
        [(1, 1, None), (None, 1, "Rome"), (None, 2, None), (None, 7, "Ulm")],
    ),
    "a lookup drops rows without a match": (
        lambda rows, others: rows.project({}, ["id", "site"]).lookup("`site`", others, "key"),
        [(1, 1, "Rome"), (2, 1, "Rome"), (3, 2, None), (5, 2, None), (6, 1, "Rome")],
    ),
    "a lookup by an expression": (
        lambda rows, others: rows.project({}, ["id"]).lookup("CAST(`id` + 1 AS INT)", others, "key"),
        [(1, None), (6, "Ulm")],
    ),
    "counts and extremes of groups; null is a group": (
        lambda rows, _: rows.aggregate({"s": "`site`"}, EVERY),
        [
            (None, 1, 1, "1.0", "1.0", "a", "a"),
            (1, 3, 3, "3.0", "nan", "a", "b"),
            (2, 2, 1, "-0.0", "-0.0", "", ""),
        ],
    ),
    "an aggregate over all rows": (
        lambda rows, _: rows.aggregate({}, EVERY),
        [(6, 5, "-0.0", "nan", "", "b")],
    ),
    "an aggregate over no rows": (
        lambda rows, _: rows.filter("false").aggregate({}, EVERY),
        [(0, 0, None, None, None, None)],
    ),
    "groups of no rows": (lambda rows, _: rows.filter("false").aggregate({"s": "`site`"}, EVERY), []),
    "groups without functions are distinct values": (
        lambda rows, _: rows.aggregate({"n": "`name`", "s": "`site` IS NULL"}, {}),
        [(None, False), ("", False), ("a", False), ("a", True), ("b", False)],
    ),
}


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) else value


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = [tuple(map(plain, row.values())) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row])


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(frame_of: MakeFrame, name: str) -> None:
    operation, expected = OPERATIONS[name]
    frame = operation(frame_of(ROWS), frame_of(OTHERS))
    table = frame.to_table()
    assert shown(table) == sorted(
        (tuple(map(plain, row)) for row in expected), key=lambda row: [(v is not None, str(v)) for v in row]
    )
    assert list(frame.columns.items()) == list(zip(table.column_names, table.schema.types, strict=True))


def test_zeros_and_nans_group_as_one_each(frame_of: MakeFrame) -> None:
    table = pa.table({"x": pa.array([0.0, -0.0, NAN, -NAN, None], pa.float64())})
    found = frame_of(table).aggregate({"x": "`x`"}, COUNT).to_table()
    assert sorted(found["n"].to_pylist()) == [1, 2, 2]


JOINS: dict[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "equal keys, and a null equals nothing": (
        "`site` = `t.key`",
        ("key",),
        [
            (1, "Rome", True),
            (2, "Rome", True),
            (3, None, True),
            (4, None, False),
            (5, None, True),
            (6, "Rome", True),
        ],
    ),
    "an inequality repeats rows": (
        "`id` > 4 AND `site` < `t.key`",
        (),
        [
            (1, None, False),
            (2, None, False),
            (3, None, False),
            (4, None, False),
            (5, "Ulm", True),
            (6, None, True),
            (6, "Ulm", True),
        ],
    ),
    "an equality and another condition": (
        "`site` = `t.key` AND `price` > 2",
        ("key",),
        [
            (1, "Rome", True),
            (2, "Rome", True),
            (3, None, False),
            (4, None, False),
            (5, None, False),
            (6, "Rome", True),
        ],
    ),
    "keys of different types": (
        "`id` = `t.key`",
        ("key",),
        [(1, "Rome", True), (2, None, True), *((i, None, False) for i in (3, 4, 5, 6))],
    ),
}


@pytest.mark.parametrize("name", JOINS)
def test_left_joins_keep_every_row(frame_of: MakeFrame, name: str) -> None:
    on, keys, expected = JOINS[name]
    join = TableJoin(Join("t", "others", on, keys, ("key", "city")), frame_of(OTHERS))
    frame = frame_of(ROWS).project({"city": "`t.city`", "matched": "`t`"}, ["id"], [join])
    assert shown(frame.to_table()) == sorted(expected, key=lambda row: [(v is not None, str(v)) for v in row])


def test_a_join_with_no_rows(frame_of: MakeFrame) -> None:
    join = TableJoin(
        Join("t", "others", "`site` = `t.key`", ("key",), ("city",)), frame_of(OTHERS.slice(0, 0))
    )
    scalars = {"city": "`t.city`", "matched": "`t`"}
    found = frame_of(ROWS).project(scalars, ["id"], [join]).to_table()
    assert found["matched"].to_pylist() == [False] * 6 and found["city"].to_pylist() == [None] * 6
    assert frame_of(ROWS.slice(0, 0)).project(scalars, ["id"], [join]).to_table().num_rows == 0


def test_keys_that_repeat_repeat_rows(frame_of: MakeFrame) -> None:
    tags = pa.table({"key": pa.array([1, 1, None], pa.int32()), "city": ["a", "b", "c"]})
    join = TableJoin(Join("t", "tags", "`t.key` = `site`", ("key",), ("city",)), frame_of(tags))
    found = frame_of(ROWS).project({"city": "`t.city`"}, ["id"], [join]).to_table()
    assert shown(found) == [
        (1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, None), (4, None), (5, None), (6, "a"), (6, "b")
    ]  # fmt: skip


def test_a_task_sees_all_rows_of_a_key_at_once(frame_of: MakeFrame) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[Any, int] = {}
        for batch in batches:
            for site in batch.column("site").to_pylist():
                counts[site] = counts.get(site, 0) + 1
        yield pa.RecordBatch.from_pydict(
            {"site": pa.array(list(counts), pa.int32()), "n": pa.array(list(counts.values()), pa.int64())}
        )

    schema = pa.schema({"site": pa.int32(), "n": pa.int64()})
    found = frame_of(ROWS).distribute("`site`", 3).map(task, schema)
    assert shown(found.to_table()) == [(None, 1), (1, 3), (2, 2)]
    assert found.columns == {"site": pa.int32(), "n": pa.int64()}


def test_a_task_of_each_partition_number(backend: Backend) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield pa.RecordBatch.from_pydict({"square": pa.array([number * number], pa.int64())})

    found = backend.run(task, 4, pa.schema({"square": pa.int64()})).to_table()
    assert sorted(found["square"].to_pylist()) == [0, 1, 4, 9]


def test_row_ids_are_different_and_stay(frame_of: MakeFrame) -> None:
    with frame_of(ROWS).with_row_ids("row") as frame:
        first, again = frame.to_table(), frame.filter("`id` > 2").to_table()
    ids = dict(zip(first["id"].to_pylist(), first["row"].to_pylist(), strict=True))
    assert len(set(ids.values())) == 6
    assert dict(zip(again["id"].to_pylist(), again["row"].to_pylist(), strict=True)) == {
        id: row for id, row in ids.items() if id > 2
    }


def test_held_rows_and_the_first_of_them(frame_of: MakeFrame) -> None:
    with frame_of(ROWS).held() as frame:
        assert frame.first(2).num_rows == 2 and frame.first(9).num_rows == 6
        assert frame.to_table(few=True).sort_by("id")["name"].to_pylist() == ROWS["name"].to_pylist()


NESTED = pa.table(
    {
        "extra": pa.array([[("b", 2)], [("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        "tags": [["b"], ["a", "z"], None],
        "spot": [{"lat": 2.5}, {"lat": 1.5}, None],
    }
)


@pytest.mark.parametrize("column", ["extra", "tags", "spot"])
def test_rows_can_be_ordered_by_columns_of_any_type(frame_of: MakeFrame, column: str) -> None:
    frame = frame_of(NESTED.append_column("id", pa.array([1, 2, 3])))
    found = frame.number("n", [frame.order_of(column)], f"`{column}` IS NOT NULL", 1).to_table()
    assert dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == {1: 2, 2: 1, 3: None}


def test_parquet_is_written_over_what_was_there_and_read_back(
    backend: Backend, frame_of: MakeFrame, tmp_path: Path
) -> None:
    place = str(tmp_path / "rows")
    frame_of(ROWS.slice(0, 2)).write_parquet(place)
    frame_of(ROWS).write_parquet(place)
    assert shown(backend.read_parquet([place]).to_table()) == shown(ROWS)
    assert (tmp_path / "rows" / "_SUCCESS").exists()
    frame_of(ROWS).write_parquet(place, partition_by="name")
    found = backend.read_parquet([f"{place}/name=a"]).to_table()
    assert sorted(found["id"].to_pylist()) == [2, 4] and "name" not in found.column_names


def test_parquet_of_no_rows_keeps_its_columns(backend: Backend, frame_of: MakeFrame, tmp_path: Path) -> None:
    frame_of(ROWS.slice(0, 0)).write_parquet(str(tmp_path / "rows"))
    found = backend.read_parquet([str(tmp_path / "rows")])
    assert found.to_table().num_rows == 0 and list(found.columns) == ROWS.column_names
