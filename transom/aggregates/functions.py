"""SQL's aggregate functions: which accumulators each needs, and how it is read off them (`lower`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Moments, States, Sum
from transom.aggregates.sketches import Distinct, Quantiles

_EXACT = Context(prec=160, rounding=ROUND_HALF_UP)
Lower = Callable[[Sequence[States], pa.DataType, tuple[Any, ...]], pa.Array]


@dataclass(frozen=True)
class Function:
    """One SQL aggregate."""

    accumulators: Callable[[pa.DataType | None, tuple[Any, ...]], tuple[Accumulator, ...]]
    lower: Lower


def _first(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
    return states[0][0].cast(type)


def _sum(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
    total = states[0][0]
    if not pa.types.is_decimal(type):
        return total.cast(type)
    return pa.array([None if v is None or not _fits(v, type) else v for v in total.to_pylist()], type)


def _fits(value: Decimal, type: pa.DataType) -> bool:
    limit = Decimal(10) ** (type.precision - type.scale)
    return -limit < value < limit  # abs() would round to 28 digits first


def _average(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
    total, count = states[0][0], states[1][0]
    if pa.types.is_decimal(type):
        pairs = zip(total.to_pylist(), count.to_pylist(), strict=True)
        return pa.array([None if not n else _decimal_quotient(v, n, type) for v, n in pairs], type)
    return pc.divide(
        total.cast(pa.float64(), safe=False),
        pc.replace_with_mask(count.cast(pa.float64()), pc.equal(count, 0), pa.scalar(None, pa.float64())),
    )


def _decimal_quotient(total: Decimal | None, count: int, type: pa.DataType) -> Decimal | None:
    """Exact, but for results of at most 15 digits, which Spark divides as doubles: its last digit is ours."""
    if total is None:
        return None
    if type.precision <= 15:
        scale = type.scale - 4  # of the input
        quotient = Decimal(repr(float(total.scaleb(scale)) / count / 10.0**scale))
    else:
        quotient = _EXACT.divide(total, Decimal(count))
    rounded = quotient.quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP, context=_EXACT)
    return rounded if _fits(rounded, type) else None


def _spread(sample: int, root: bool) -> Lower:
    def lower(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
        count, _, squares, _ = (state.to_numpy(zero_copy_only=False) for state in states[0])
        enough = count > sample
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = squares / np.where(enough, count - sample, 1)
            found = np.sqrt(variance) if root else variance
        return pa.array(found, mask=~enough)

    return lower


def _distinct(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
    return Distinct(pa.null(), 12).estimates(states[0][0])


def _percentile(states: Sequence[States], type: pa.DataType, parameters: tuple[Any, ...]) -> pa.Array:
    asked = parameters[0]
    ranks = tuple(asked) if isinstance(asked, (tuple, list)) else (asked,)
    found = Quantiles(pa.null(), 200).percentiles(states[0][0], ranks)
    if pa.types.is_list(type):
        flat = _of_type(
            [value for values in found if values is not None for value in values], type.value_type
        )
        widths = [0 if values is None else len(values) for values in found]
        offsets = pa.array(
            np.r_[0, np.cumsum(widths)], pa.int32(), mask=np.r_[[v is None for v in found], False]
        )
        return pa.ListArray.from_arrays(offsets, flat).cast(type)
    return _of_type([None if values is None else values[0] for values in found], type)


def _of_type(values: Sequence[float | None], type: pa.DataType) -> pa.Array:
    """Doubles back into the type that they came from; one that was rounded past its end is the end."""
    if pa.types.is_floating(type):
        return pa.array(values, pa.float64()).cast(type)
    if pa.types.is_decimal(type):
        most = _EXACT.scaleb(Decimal(10**type.precision - 1), -type.scale)
        least = most.copy_negate()  # a minus sign would round to 28 digits
        unit = Decimal(1).scaleb(-type.scale)
        exact = (None if v is None else Decimal(repr(v)).quantize(unit, context=_EXACT) for v in values)
        return pa.array([None if v is None else max(least, min(v, most)) for v in exact], type)
    whole = pa.array([None if v is None else min(round(v), 2**63 - 1) for v in values], pa.int64())
    return whole.cast(pa.int32()).cast(type) if pa.types.is_date(type) else whole.cast(type)


def _needs(*makers: Callable[[pa.DataType], Accumulator]) -> Callable[..., tuple[Accumulator, ...]]:
    return lambda input, parameters: tuple(maker(input) for maker in makers)


def _summed_for_average(input: pa.DataType) -> Accumulator:
    """The sum that an average is read off: SUM's own, but where that could wrap, one that can't.

    Spark adds up doubles here. Added exactly, the answer is the same to within its rounding, and does not
    depend on the order of the rows.
    """
    return Sum(pa.decimal128(19, 0) if input == pa.int64() else input)


FUNCTIONS: dict[str, Function] = {
    "count_rows": Function(_needs(lambda _: CountRows()), _first),
    "count": Function(_needs(lambda _: Count()), _first),
    "sum": Function(_needs(Sum), _sum),
    "avg": Function(_needs(_summed_for_average, lambda _: Count()), _average),
    "min": Function(_needs(lambda input: Extreme(input, "min")), _first),
    "max": Function(_needs(lambda input: Extreme(input, "max")), _first),
    "var_pop": Function(_needs(lambda _: Moments()), _spread(0, root=False)),
    "var_samp": Function(_needs(lambda _: Moments()), _spread(1, root=False)),
    "stddev_pop": Function(_needs(lambda _: Moments()), _spread(0, root=True)),
    "stddev_samp": Function(_needs(lambda _: Moments()), _spread(1, root=True)),
    "approx_count_distinct": Function(
        lambda input, parameters: (Distinct.with_error(input, *(parameters or (0.02,))),), _distinct
    ),
    "approx_percentile": Function(
        lambda input, parameters: (Quantiles.with_accuracy(input, *(parameters[1:] or (10000,))),),
        _percentile,
    ),
}
