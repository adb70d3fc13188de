"""A generated trading hour with the characteristics that the papers report of a real one.

Trades(time, symbol, price, vol) from 12:00 to 13:00 in ten Parquet files of six minutes, and the static
tables Close(symbol, cp) and Index(symbol, r3000, r2000, r1000). "On-the-fly sharing", section 6.1.
"""

from __future__ import annotations

import os
import shutil
import string
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

START = 1_101_902_400_000_000  # 2004-12-01 12:00:00 UTC, the paper's day
HOUR = 3_600_000_000
FILES = 10
ROWS = 1_181_901  # the paper's
SYMBOLS = 6_000
LARGEST = 1_600_000
# Shares of the most common volumes. Half of all trades are of 100 shares, and these 15 are over 90 %.
COMMON = {
    **{100: 0.497, 200: 0.125, 300: 0.070, 500: 0.055, 400: 0.045, 1_000: 0.040, 600: 0.020},
    **{800: 0.012, 700: 0.012, 900: 0.009, 2_000: 0.009, 1_500: 0.006, 5_000: 0.005, 3_000: 0.005},
    **{2_500: 0.004},
}
_VERSION = 2  # of the generator; a new version generates new files


@dataclass(frozen=True)
class TradingHour:
    """The files of a generated hour."""

    directory: Path

    @property
    def trades(self) -> Path:
        """The directory of the ten files of trades."""
        return self.directory / "trades"

    @property
    def closing(self) -> Path:
        """Close(symbol, cp): closing prices of the day before."""
        return self.directory / "closing.parquet"

    @property
    def members(self) -> Path:
        """Index(symbol, r3000, r2000, r1000): the members of each index."""
        return self.directory / "members.parquet"

    def files(self) -> list[Path]:
        """The files of trades in order of time."""
        return sorted(self.trades.glob("*.parquet"))

    def batches(self) -> list[pa.Table]:
        """A table for each file, inner-joined with both static tables, in order of time."""
        known = pq.read_table(self.closing).join(pq.read_table(self.members), "symbol", join_type="inner")
        known = known.combine_chunks()
        return [_joined(pq.read_table(file), known) for file in self.files()]


def trading_hour(directory: Path | None = None, rows: int = ROWS, seed: int = 1) -> TradingHour:
    """The hour with this many trades; the first call generates it in the cache directory."""
    base = directory or cache_directory()
    hour = TradingHour(base / f"trading-hour-{rows}-{seed}-v{_VERSION}")
    if not hour.directory.exists():
        base.mkdir(parents=True, exist_ok=True)
        # Generate into a temporary directory first, so that an interrupted attempt never looks complete.
        unfinished = TradingHour(Path(tempfile.mkdtemp(prefix="unfinished-", dir=base)))
        _write(unfinished, rows, seed)
        try:
            unfinished.directory.rename(hour.directory)
        except OSError:
            shutil.rmtree(unfinished.directory)  # another process was faster
    return hour


def cache_directory() -> Path:
    """$TRANSOM_BENCH_DATA, or a place under the user's cache directory."""
    given = os.environ.get("TRANSOM_BENCH_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else cache / "transom" / "benchmarks"


def _write(hour: TradingHour, rows: int, seed: int) -> None:
    trades, closing, members = generate(rows, seed)
    hour.trades.mkdir()
    pq.write_table(closing, hour.closing)
    pq.write_table(members, hour.members)
    times = trades["time"].cast(pa.int64()).to_numpy()
    cuts = np.searchsorted(times, START + np.arange(FILES + 1) * (HOUR // FILES))
    for number, (start, end) in enumerate(pairwise(cuts)):
        file = hour.trades / f"{number:02d}.parquet"
        pq.write_table(trades.slice(start, end - start), file, row_group_size=60_000)
        when = START // 1_000_000 + (number + 1) * 360
        os.utime(file, (when, when))  # the engine reads files in order of modification time


def generate(rows: int, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Trades in order of time, Close and Index; the same for the same arguments."""
    rng = np.random.default_rng(seed)
    names = _symbols(rng)
    shifted = 1.0 / (
        np.arange(SYMBOLS) + 20.0
    )  # Zipf's law with a flatter head: no stock has a tenth of all trades
    traded = rng.choice(SYMBOLS, rows, p=shifted / shifted.sum()).astype(np.int32)
    cents = np.maximum(50, np.round(100 * rng.lognormal(np.log(22), 0.8, SYMBOLS))).astype(np.int64)
    trades = pa.table(
        {
            "time": pa.array(_times(rng, rows), pa.timestamp("us", "UTC")),
            "symbol": pa.DictionaryArray.from_arrays(traded, names).cast(pa.string()),
            "price": _prices(rng, traded, cents) / 100,
            "vol": _volumes(rng, rows),
        }
    )
    # New listings have no closing price: in the paper, 96 % of the trades have a match.
    listed = rng.random(SYMBOLS) > 0.037
    closing = pa.table({"symbol": names, "cp": cents / 100}).filter(pa.array(listed))
    return trades, closing, _members(rng, names)


def _symbols(rng: np.random.Generator) -> pa.Array:
    letters = np.array(list(string.ascii_uppercase))[rng.integers(0, 26, (2 * SYMBOLS, 4))]
    lengths = rng.integers(2, 5, len(letters))
    names = dict.fromkeys("".join(word[:length]) for word, length in zip(letters, lengths, strict=True))
    return pa.array(list(names)[:SYMBOLS], pa.string())


def _members(rng: np.random.Generator, names: pa.Array) -> pa.Table:
    """Large stocks are traded more: the rank by size is the rank by activity plus noise."""
    size = np.argsort(np.argsort(np.log(np.arange(SYMBOLS) + 20.0) + rng.normal(0, 0.5, SYMBOLS)))
    r3000 = size < 3_000
    changing = rng.random(SYMBOLS) < 0.01  # moving between indexes, and a member of neither
    r1000 = (size < 1_000) & ~changing
    r2000 = r3000 & (size >= 1_000) & ~changing
    return pa.table({"symbol": names, "r3000": r3000, "r2000": r2000, "r1000": r1000})


def _times(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Sorted microseconds. The rate varies from second to second, and one trade in twenty has the time of the
    previous trade, as parts of one order do."""
    seconds = HOUR // 1_000_000
    phase = np.arange(seconds) / seconds
    rate = 1 + 0.15 * np.cos(2 * np.pi * phase) + 0.08 * np.sin(14 * np.pi * phase)
    counts = rng.multinomial(rows, _normalized(rate * rng.gamma(8.0, 1 / 8.0, seconds)))
    starts = START + np.repeat(np.arange(seconds) * 1_000_000, counts)
    times = np.sort(starts + rng.integers(0, 1_000_000, rows))
    tied = rng.random(rows) < 0.05
    tied[:1] = False
    leaders = np.maximum.accumulate(np.where(tied, 0, np.arange(rows)))
    return times[leaders]


def _normalized(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _volumes(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Round lots, mostly of the common sizes; a few odd lots and large blocks."""
    common = rng.choice(list(COMMON), rows, p=_normalized(np.array(list(COMMON.values()))))
    rest = 100 * np.ceil(rng.lognormal(np.log(16), 1.35, rows))
    rest += np.where(rng.random(rows) < 0.03, rng.integers(1, 100, rows), 0)
    blocks = rng.random(rows) < 0.002
    rest[blocks] = 1_000 * np.ceil(rng.pareto(0.8, rows)[blocks] * 20)
    chosen = np.where(rng.random(rows) < sum(COMMON.values()), common, rest)
    return np.minimum(chosen, LARGEST).astype(np.int32)


def _prices(rng: np.random.Generator, traded: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Whole cents: each stock opens near its closing price and follows a random walk from trade to trade."""
    moves = rng.choice(np.array([-1, 0, 1]), len(traded), p=[0.15, 0.7, 0.15])
    ticks = np.maximum(1, np.round(close * 0.0003)).astype(np.int64)
    order = np.argsort(traded, kind="stable")
    stock = traded[order]
    walked = np.cumsum(moves[order] * ticks[stock])
    first = np.searchsorted(stock, stock)  # where the walk of the same stock begins
    walked -= walked[first]
    opening = np.round(close * (1 + rng.laplace(0, 0.012, SYMBOLS))).astype(np.int64)
    prices = np.empty(len(traded), np.int64)
    prices[order] = np.maximum(1, opening[stock] + walked)
    return prices


def _joined(trades: pa.Table, known: pa.Table) -> pa.Table:
    """Join by positions, because Arrow's join does not preserve the order of time."""
    where = pc.index_in(trades["symbol"], known["symbol"].combine_chunks())
    found = where.is_valid()
    trades, where = trades.filter(found), where.filter(found)
    for name in ("cp", "r3000", "r2000", "r1000"):
        trades = trades.append_column(name, known[name].take(where))
    return trades.combine_chunks()
