"""Every accumulator of every registered function, over every input type, with sample values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.sketches import sketched_count
from transom.aggregates.table import Lower, Parameters, aggregate_function, aggregate_functions
from transom.sql.binding.aggregate_calls import result_type

NAN, INF = math.nan, math.inf
SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-5, 0, 300],
    pa.int32(): [-5, 0, 2**31 - 1],
    pa.int64(): [-(2**63), -5, 0, 7, 2**63 - 1],
    pa.float32(): [-1.5, -0.0, 0.0, 2.25, NAN],
    pa.float64(): [-1.5, -0.0, 0.0, 1e15, NAN, INF],
    pa.decimal128(10, 2): [Decimal("-7.25"), Decimal("0.00"), Decimal("99999999.99")],
    pa.decimal128(38, 2): [Decimal("-7.25"), Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")],
    pa.string(): ["", "a", "é", "😀", "z"],
    pa.binary(): [b"", b"\x00", b"\xff"],
    pa.date32(): [date(1969, 12, 31), date(2013, 1, 1)],
    pa.timestamp("us"): [datetime(1969, 12, 31), datetime(2013, 1, 1, 12, 0, 0, 5)],
    pa.timestamp("us", tz="UTC"): [datetime(1969, 12, 31, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)],
    pa.null(): [],
    pa.list_(pa.float64()): [[], [None], [1.5, NAN], [1.5], [1.5, 2.0]],
    pa.struct([("a", pa.int32()), ("b", pa.string())]): [
        {"a": 1, "b": None},
        {"a": 1, "b": "é"},
        {"a": None, "b": "z"},
    ],
    # Functions of several arguments take them as fields of a struct.
    pa.struct([("y", pa.float64()), ("x", pa.int32())]): [
        {"y": 1.5, "x": 2},
        {"y": 2.5, "x": 3},
        {"y": -2.0, "x": 7},
        {"y": None, "x": 1},
        {"y": 4.0, "x": None},
    ],
    pa.struct([("x", pa.string())]): [{"x": None}, {"x": "a"}, {"x": "é"}],
    pa.struct([("x", pa.float64())]): [{"x": 1.5}, {"x": -0.0}, {"x": 0.0}, {"x": NAN}, {"x": None}],
    pa.struct([("t", pa.timestamp("us")), ("x", pa.string())]): [
        {"t": datetime(2013, 1, 1), "x": "b"},
        {"t": datetime(2013, 1, 1), "x": "a"},
        {"t": datetime(2013, 1, 2), "x": None},
        {"t": datetime(2013, 1, 3), "x": "b"},
    ],
    pa.struct([("x", pa.int32()), ("o", pa.float64())]): [
        {"x": 1, "o": NAN},
        {"x": 2, "o": 0.0},
        {"x": None, "o": 0.0},
        {"x": 5, "o": None},
    ],
}
FRACTIONS: list[tuple[Any, ...]] = [(0.5, False), ((0.0, 0.3, 1.0), True)]
PARAMETERS: dict[str, list[tuple[Any, ...]]] = {
    "collect_list": [(100,)],
    "collect_list_distinct": [(100,)],
    "collect_set": [(100,)],
    "string_agg": [(", ", False, 100), ("", True, 100)],
    "string_agg_distinct": [(", ", False, 100), ("", True, 100)],
    "mode": [(True, False), (True, True)],
    "percentile": FRACTIONS,
    "percentile_distinct": FRACTIONS,
    "percentile_disc": FRACTIONS,
    "percentile_disc_distinct": FRACTIONS,
    "approx_count_distinct": [(0.05,), (0.01,)],
    "approx_top_k": [(2, 100), (5, 10_000)],
    "histogram_numeric": [(100,)],
    "hll_sketch_agg": [(12,), (4,)],
    "approx_percentile": [(0.5, 10_000), ((0.0, 0.5, 1.0), 100)],
}


def uses() -> list[tuple[str, pa.DataType, tuple[Any, ...], pa.DataType]]:
    """(function, input type, parameters, result type) of every call that the SQL front lets through."""
    every = (
        (function.name, kind, parameters, result_type(function.name, [kind], parameters))
        for function in aggregate_functions()
        for kind in SAMPLES
        for parameters in PARAMETERS.get(function.name, [()])
    )
    return [use for use in every if not isinstance(use[-1], str)]


@cache
def accumulators() -> tuple[tuple[Accumulator, pa.DataType], ...]:
    """Each accumulator with each input type, once."""
    pairs = (
        (accumulator, kind)
        for function, kind, parameters, _ in uses()
        for accumulator in aggregate_function(function).accumulators(kind, parameters)
    )
    return tuple(dict.fromkeys(pairs))


@cache
def readings() -> dict[tuple[Accumulator, pa.DataType], list[tuple[Lower, pa.DataType, Parameters]]]:
    """The calls that read one accumulator alone: how they lower it, their result type and parameters."""
    read: dict[tuple[Accumulator, pa.DataType], list[tuple[Lower, pa.DataType, Parameters]]] = {}
    for name, kind, parameters, type in uses():
        function = aggregate_function(name)
        needed = function.accumulators(kind, parameters)
        if len(needed) == 1:
            read.setdefault((needed[0], kind), []).append((function.lower, type, parameters))
    return read


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind, from_pandas=False)


def zeros(rows: int) -> np.ndarray:
    return np.zeros(rows, np.int64)


def lift(accumulator: Accumulator, values: list[Any], kind: pa.DataType) -> States:
    """The state of one group of values."""
    return accumulator.lift(array(values, kind), zeros(len(values)), 1)


def combine(accumulator: Accumulator, *states: States) -> States:
    """The state of one group, from states of its parts."""
    columns = [pa.concat_arrays(column) for column in zip(*states, strict=True)]
    return accumulator.combine(columns, zeros(len(columns[0])), 1)


def answers(accumulator: Accumulator, kind: pa.DataType, state: States) -> list[Any]:
    """A state as all that can be read off it: sketches that answer alike need not be equal bytes."""
    calls = readings().get((accumulator, kind), ())
    read = [lower([state], type, parameters).to_pylist() for lower, type, parameters in calls]
    return read or [column.to_pylist() for column in state]


def answers_of_groups(accumulator: Accumulator, kind: pa.DataType, states: States) -> list[list[Any]]:
    """The answers of each group, each as `answers` gives them for the group alone."""
    return [[[value] for value in group] for group in zip(*answers(accumulator, kind, states), strict=True)]


def alike(ours: Any, theirs: Any) -> bool:
    """Equal, floats up to rounding; NaN is NaN."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and alike(list(ours.values()), list(theirs.values()))
    if isinstance(ours, float) and isinstance(theirs, float):
        return (ours != ours and theirs != theirs) or math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(ours, bytes) and isinstance(theirs, bytes) and ours != theirs:
        estimate = sketched_count(ours)  # the bytes of a sketch depend on the order in which it was made
        return estimate is not None and estimate == sketched_count(theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)
