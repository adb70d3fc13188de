"""Scalar expressions by vectors and row by row, against a line of NumPy or Arrow written by hand.

`python -m benchmarks.scalars` prints processor milliseconds for a million rows, and for twenty expressions over a
hundred rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.interpreter.scalars import InterpretedScalars

ROWS = 1_000_000
SMALL_ROWS = 100
HOUR = 3_600_000_000
START = 1_101_902_400_000_000


def rows(count: int = ROWS, seed: int = 1) -> pa.Table:
    """Trades with the closing price of the day before."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "price": rng.uniform(1, 100, count),
            "cp": rng.uniform(1, 100, count),
            "vol": rng.integers(1, 1000, count),
            "symbol": pa.array(rng.choice(["ibm", "msft", "aapl", "goog"], count)),
            "ts": pa.array(START + rng.integers(0, 24 * HOUR, count), pa.timestamp("us", "UTC")),
            "cost": pa.array(rng.integers(1, 10**6, count))
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(21, 2)),
        }
    )


def by_hand(table: pa.Table) -> dict[str, Callable[[], object] | None]:
    """Expressions, and the same in NumPy or Arrow where that is one line."""
    price, close, vol = (table[name].to_numpy() for name in ("price", "cp", "vol"))
    micros = table["ts"].cast(pa.int64()).to_numpy()
    return {
        "price * vol": lambda: price * vol,
        "abs(price - cp) / cp": lambda: np.abs(price - close) / close,
        "CASE WHEN price > 50 THEN price ELSE cp END": lambda: np.where(price > 50, price, close),
        "price > 50 AND vol < 500": lambda: (price > 50) & (vol < 500),
        "date_trunc('hour', ts)": lambda: micros - micros % HOUR,
        "year(ts)": None,
        "upper(symbol)": lambda: pc.ascii_upper(table["symbol"]),
        "symbol LIKE 'i%'": lambda: pc.starts_with(table["symbol"], "i"),
        "CAST(vol AS DOUBLE)": lambda: vol.astype(np.float64),
        "round(price, 2)": None,
        "cost * 2": None,
        "ln(price)": lambda: np.log(price),
        "initcap(symbol)": None,
    }


SMALL = [
    "price * vol", "abs(price - cp) / cp", "price + {}", "price > {} AND vol < 500", "vol",
    "CASE WHEN price > {} THEN price ELSE cp END", "unix_micros(ts)", "CAST(vol AS DOUBLE) * {}",
    "coalesce(price, {})", "symbol",
]  # fmt: skip


def milliseconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The processor time of a call, the best of several."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best * 1000


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    count = parser.parse_args().rows
    table, scalars = rows(count), InterpretedScalars()
    print(
        f"{'milliseconds for ' + format(count, ',') + ' rows':45} {'by row':>8} {'vectors':>8} {'by hand':>8}"
    )
    for text, hand in by_hand(table).items():
        named = {"x": text}
        scalars.project(table.slice(0, 10), named)
        slow = milliseconds(lambda named=named: scalars.project_by_row(table, named), 1)
        fast = milliseconds(lambda named=named: scalars.project(table, named))
        print(
            f"{text:45} {slow:8.0f} {fast:8.1f} {'' if hand is None else format(milliseconds(hand), '8.1f')}"
        )
    small = table.slice(0, SMALL_ROWS)
    texts = {f"c{at}": SMALL[at % len(SMALL)].format(at) for at in range(20)}
    scalars.project(small, texts)
    each = milliseconds(lambda: [scalars.project(small, texts) for _ in range(100)], 5) / 100
    print(f"{len(texts)} expressions over {SMALL_ROWS} rows: {each:.2f} ms")


if __name__ == "__main__":
    main()
