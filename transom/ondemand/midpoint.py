"""The midpoint of an interval as a single answer, in the answer's type and never outside of the interval."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

_EXACT = Context(prec=400)


def midpoints(low: pa.Array, high: pa.Array, kind: pa.DataType) -> pa.Array:
    """The midpoints of intervals; null where there is no interval.

    >>> midpoints(pa.array([2**63 - 2, None]), pa.array([2**63 - 1, None]), pa.int64()).to_pylist()
    [9223372036854775806, None]
    """
    valid = low.is_valid().to_numpy(zero_copy_only=False) & high.is_valid().to_numpy(zero_copy_only=False)
    ends = [end.fill_null(0).to_numpy(zero_copy_only=False) for end in (low, high)]
    if pa.types.is_decimal(kind):
        pairs = zip(ends[0].tolist(), ends[1].tolist(), valid.tolist(), strict=True)
        return pa.array([_decimal(one, other, kind) if there else None for one, other, there in pairs], kind)
    if pa.types.is_integer(low.type):
        halves = (ends[0] & ends[1]) + ((ends[0] ^ ends[1]) >> 1)  # the sum of both could overflow
    else:
        with np.errstate(invalid="ignore"):
            halves = ends[0] / 2 + ends[1] / 2
            halves[np.isinf(ends[0]) & (ends[0] == -ends[1])] = 0.0
            halves = np.where(ends[0] == ends[1], ends[0], np.clip(halves, *ends))
    return pa.array(halves, mask=~valid).cast(kind, safe=False)


def _decimal(low: float, high: float, kind: pa.DataType) -> Decimal | None:
    """The decimal of the type that is nearest to the midpoint; None if no such decimal lies in the interval."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return None
    half = _EXACT.divide(_EXACT.add(Decimal(low), Decimal(high)), Decimal(2))
    rounded = half.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    most = _EXACT.scaleb(Decimal(10**kind.precision - 1), -kind.scale)
    nearest = max(most.copy_negate(), min(rounded, most))
    return nearest if low <= nearest <= high else None
