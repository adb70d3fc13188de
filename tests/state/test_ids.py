"""The ids in checkpoints, as literal texts: a rename in the code must not change any of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import combinations

import pyarrow as pa
import pytest

from tests.plan.bids import compiled
from transom.aggregates import accumulators, central_moments, collected, extreme_rows, multisets, sketches
from transom.aggregates.accumulators import (
    Accumulator,
    Count,
    CountRows,
    Extreme,
    Moments,
    Sum,
)
from transom.aggregates.central_moments import CentralMoments, Comoments
from transom.aggregates.collected import Collected
from transom.aggregates.extreme_rows import ExtremeRow, ExtremeValue
from transom.aggregates.multisets import Multiset
from transom.aggregates.sketches import Distinct, Quantiles
from transom.columns.type_ids import type_id
from transom.ondemand.store_specs import store_id, stores_read_by
from transom.ondemand.structures.exact_structure import exact_structure
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.timegram import TimeGram
from transom.plan.layout import Layout

TYPES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "half": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary(16)": pa.binary(16),
    "date": pa.date32(),
    "date64": pa.date64(),
    "decimal(38,2)": pa.decimal128(38, 2),
    "decimal(10,-2)": pa.decimal128(10, -2),
    "decimal256(38,2)": pa.decimal256(38, 2),
    'timestamp(us,"UTC")': pa.timestamp("us", tz="UTC"),
    "timestamp_ntz(us)": pa.timestamp("us"),
    "timestamp_ntz(ns)": pa.timestamp("ns"),
    "duration(us)": pa.duration("us"),
    "time32(ms)": pa.time32("ms"),
    "time64(us)": pa.time64("us"),
    "interval": pa.month_day_nano_interval(),
    "array<int>": pa.list_(pa.int32()),
    "array<int not null>": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "large_array<int>": pa.large_list(pa.int32()),
    "array(3)<int>": pa.list_(pa.int32(), 3),
    "map<string,array<double>>": pa.map_(pa.string(), pa.list_(pa.float64())),
    'struct<"a":int,"b\\"":string>': pa.struct([("a", pa.int32()), ('b"', pa.string())]),
    "dictionary<int,string>": pa.dictionary(pa.int32(), pa.string()),
}

ACCUMULATORS: dict[str, Accumulator] = {
    "count(*)": CountRows(),
    "count": Count(),
    "sum(int)": Sum(pa.int32()),
    "sum(bigint)": Sum(pa.int64()),
    "sum(double)": Sum(pa.float64()),
    "sum(decimal(38,2))": Sum(pa.decimal128(38, 2)),
    "sum(decimal(10,2))": Sum(pa.decimal128(10, 2)),
    "min(double)": Extreme(pa.float64(), "min"),
    "max(double)": Extreme(pa.float64(), "max"),
    "max(string)": Extreme(pa.string(), "max"),
    'max(timestamp(us,"UTC"))': Extreme(pa.timestamp("us", tz="UTC"), "max"),
    "moments": Moments(),
    "multiset(int)": Multiset(pa.int32()),
    "central_moments": CentralMoments(),
    "comoments": Comoments(),
    "collected(double,string,most=100)": Collected(pa.float64(), pa.string(), 100),
    "first_row(timestamp_ntz(us),string)": ExtremeRow(pa.timestamp("us"), pa.string(), "first"),
    "last_row(double,int)": ExtremeRow(pa.float64(), pa.int32(), "last"),
    "max(array<int>)": ExtremeValue(pa.list_(pa.int32()), "max"),
    "hll(string,lg_k=9,counts_empty=True)": Distinct(pa.string(), 9),
    "hll(string,lg_k=12,counts_empty=True)": Distinct(pa.string(), 12),
    "hll(string,lg_k=12,counts_empty=False)": Distinct(pa.string(), 12, counts_empty=False),
    "kll(double,k=200)": Quantiles(pa.float64(), 200),
    "kll(int,k=200)": Quantiles(pa.int32(), 200),
}

STRUCTURES: dict[str, list[Structure]] = {
    "values": [exact_structure(CountRows()), exact_structure(Sum(pa.float64())), exact_structure(Moments())],
    "staircase(max(double))": [exact_structure(Extreme(pa.float64(), "max"))],
    "staircase(min(int))": [exact_structure(Extreme(pa.int32(), "min"))],
    "timegram(rows,buckets=64)": [TimeGram(None)],
    "timegram(double,buckets=8,between=0.0:1.5)": [TimeGram(pa.float64(), 8, (0, 1.5))],
    "timegram(int,buckets=64,bounds=1.0:2.0:4.0)": [TimeGram(pa.int32(), bounds=(1, 2, 4))],
    "timegram(double,buckets=64,within=0.05)": [TimeGram(pa.float64(), within=0.05)],
    "timegram(double,buckets=64,slice=1000000)": [TimeGram(pa.float64(), slice=1_000_000)],
}


@pytest.mark.parametrize(("expected", "kind"), TYPES.items(), ids=TYPES)
def test_a_type_has_its_id(expected: str, kind: pa.DataType) -> None:
    assert type_id(kind) == expected


def test_different_types_have_different_ids() -> None:
    assert all(left != right for left, right in combinations(TYPES.values(), 2))


def test_a_type_without_an_id_is_refused() -> None:
    with pytest.raises(TypeError, match="have no id"):
        type_id(pa.dense_union([pa.field("a", pa.int32())]))


@pytest.mark.parametrize(("expected", "accumulator"), ACCUMULATORS.items(), ids=ACCUMULATORS)
def test_an_accumulator_has_its_id(expected: str, accumulator: Accumulator) -> None:
    assert accumulator.id == expected


def test_every_accumulator_is_in_the_table() -> None:
    classes = {
        kind
        for module in (accumulators, central_moments, collected, extreme_rows, multisets, sketches)
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and hasattr(kind, "combine")
    }
    assert classes == {type(accumulator) for accumulator in ACCUMULATORS.values()}


@pytest.mark.parametrize("build", [Sum, lambda kind: Extreme(kind, "min"), lambda kind: Extreme(kind, "max")])
def test_accumulators_of_different_types_have_different_ids(build: type[Sum]) -> None:
    assert len({build(kind).id for kind in TYPES.values()}) == len(TYPES)


@pytest.mark.parametrize("accumulator", ACCUMULATORS.values(), ids=ACCUMULATORS)
def test_an_id_names_every_parameter(accumulator: Accumulator) -> None:
    for field in fields(accumulator):  # type: ignore[arg-type]
        value = getattr(accumulator, field.name)
        assert (type_id(value) if isinstance(value, pa.DataType) else str(value)) in accumulator.id


@pytest.mark.parametrize("accumulator", ACCUMULATORS.values(), ids=ACCUMULATORS)
def test_an_id_is_independent_of_the_name_of_its_class(accumulator: Accumulator) -> None:
    renamed = type("Renamed", (type(accumulator),), {})
    values = [getattr(accumulator, field.name) for field in fields(accumulator)]  # type: ignore[arg-type]
    assert renamed(*values).id == accumulator.id


@pytest.mark.parametrize(("expected", "structures"), STRUCTURES.items(), ids=STRUCTURES)
def test_a_structure_has_the_id_of_what_it_stores(expected: str, structures: list[Structure]) -> None:
    assert {structure.id for structure in structures} == {expected}


FROM = "FROM bids [RANGE 4 minutes SLIDE 1 minute]"

SLOTS = {
    f"SELECT count(*) {FROM}": ["count(*) of *"],
    f"SELECT avg(price) {FROM}": ["sum(double) of `price`", "count of `price`"],
    f"SELECT stddev(price) {FROM}": ["moments of `price`"],
    f"SELECT sum(amount) FILTER (WHERE kind = 'it''s') {FROM}": [
        "sum(decimal(10,2)) of `amount` where `kind` = 'it''s'"
    ],
    f"SELECT max(site) FILTER (WHERE day >= DATE '2013-01-01') {FROM}": [
        "max(int) of `site` where `day` >= DATE '2013-01-01'"
    ],
    f"SELECT min(price) FILTER (WHERE amount IN (1.50, 2)) {FROM}": [
        "min(double) of `price` where `amount` IN (1.50BD, 2BD)"
    ],
}


@pytest.mark.parametrize(("text", "expected"), SLOTS.items(), ids=SLOTS)
def test_a_query_has_the_ids_of_its_slots(text: str, expected: list[str]) -> None:
    assert list(compiled(text).slot_ids) == expected


SELECTIONS = {
    f"SELECT count(*) {FROM}": "bids by ts",
    f"SELECT count(*) {FROM} WHERE price > 5 AND kind = 'a' GROUP BY site": (
        "bids by ts where `kind` = 'a' AND `price` > 5.0 group by `site`"
    ),
    "SELECT count(*) FROM bids [ROWS 5 SLIDE 5]": "bids by rows",
}


@pytest.mark.parametrize(("text", "expected"), SELECTIONS.items(), ids=SELECTIONS)
def test_a_query_has_the_id_of_its_selection(text: str, expected: str) -> None:
    assert compiled(text).selection == expected


@pytest.mark.parametrize(
    ("text", "naive", "expected"),
    [
        (f"SELECT sum(price), count(*) {FROM}", False, "slices of bids by [] with [sum(double), count(*)]"),
        (
            f"SELECT max(day) {FROM} GROUP BY site, kind",
            False,
            "slices of bids by [int, string] with [max(date)]",
        ),
        (f"SELECT max(day) {FROM} GROUP BY site", True, "rows of bids by [int] with [max(date)]"),
    ],
    ids=["one group", "many groups", "the naive strategy"],
)
def test_a_layout_has_the_id_of_its_sheet(text: str, naive: bool, expected: str) -> None:
    query = compiled(text, naive=naive)
    assert Layout.of(query, query.slots).id == expected


STORES = {
    "SELECT avg(price), max(price), count(*) FROM bids [RANGE 4 minutes] WHERE site = 3 GROUP BY kind": [
        "bids by ts where `site` = 3 group by `kind` | staircase(max(bigint)) of times",
        "bids by ts where `site` = 3 group by `kind` | values of `price` double",
        "bids by ts where `site` = 3 group by `kind` | staircase(max(double)) of `price` double",
        "bids by ts where `site` = 3 group by `kind` | values of rows",
    ],
    "SELECT sum(seq) FILTER (WHERE site = 1) FROM bids [RANGE 4 minutes] USING timegram(32)": [
        "bids by ts | staircase(max(bigint)) of times",
        "bids by ts | timegram(bigint,buckets=32) of `seq` bigint where `site` = 1",
    ],
}


@pytest.mark.parametrize(("text", "expected"), STORES.items(), ids=["exact", "timegram"])
def test_an_on_demand_query_has_the_ids_of_its_stores(text: str, expected: list[str]) -> None:
    query = compiled(text)
    assert [store_id(query.selection, spec) for spec in stores_read_by(query).specs] == expected
