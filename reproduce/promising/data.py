"""The streams of the experiments on promising tuples: two stores, generated from a seed, or recorded."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from reproduce.prodding.data import SECOND, Numbers
from reproduce.report import Options
from transom.errors import SettingError

INTERARRIVAL = 0.1  # seconds between two tuples of a store, on average (section 5)
ITEMS, EXPONENT = (
    1000,
    1.177,
)  # Zipf: two tuples have the same item with probability 6.7 % (section 5.2)
START = 1_300_000_000 * SECOND  # when the streams start: any day will do
RETAIL = "online-retail-2010-2011.csv.gz"
DEPARTMENT = 3  # leading characters of a stock code; with this many, the retail stream comes nearest to 6.7 %

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """The sales of a store: item numbers, and times in microseconds."""

    times: Numbers
    items: Numbers

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Stores:
    """Two streams over the same items, numbered from 0."""

    name: str
    seed: int
    first: Stream
    second: Stream
    items: int

    @property
    def frequencies(self) -> tuple[Numbers, Numbers]:
        """How often each item is sold in each store."""
        one, two = (np.bincount(s.items, minlength=self.items) for s in (self.first, self.second))
        return one, two

    @property
    def selectivity(self) -> float:
        """The share of all pairs, one of each store, that have the same item."""
        one, two = self.frequencies
        return float(np.sum(one / max(len(self.first), 1) * (two / max(len(self.second), 1))))

    def as_row(self) -> dict[str, Any]:
        """The stores as a row of a table."""
        return {
            "data": self.name,
            "seed": self.seed,
            "tuples": len(self.first) + len(self.second),
            "items": int(np.count_nonzero(np.add(*self.frequencies))),
            "join_selectivity_percent": 100 * self.selectivity,
        }


def zipf(items: int, exponent: float) -> Floats:
    """The probability of each rank.

    >>> float(np.sum(zipf(ITEMS, EXPONENT) ** 2).round(3))
    0.067
    """
    weights = np.arange(1, items + 1) ** -exponent
    return weights / weights.sum()


def arrivals(draw: np.random.Generator, seconds: float, interarrival: float = INTERARRIVAL) -> Numbers:
    """Arrival times with exponential gaps, as in the paper's replayed logs, during some seconds."""
    gaps = draw.exponential(interarrival * SECOND, int(seconds / interarrival * 1.2) + 100)
    times = np.cumsum(gaps).astype(np.int64)
    return START + times[times < seconds * SECOND]


def generated(
    seconds: float, seed: int, interarrival: float = INTERARRIVAL, shift: float | None = None
) -> Stores:
    """Zipf items in both stores; with `shift`, other items become popular every `shift` seconds."""
    draw = np.random.default_rng(seed)
    likely = zipf(ITEMS, EXPONENT)
    eras = 1 if shift is None else int(seconds / shift) + 1
    # An item's number does not depend on its frequency.
    numbers = np.stack([draw.permutation(ITEMS) for _ in range(eras)])
    streams = []
    for _ in range(2):
        times = arrivals(draw, seconds, interarrival)
        era = 0 if shift is None else np.minimum((times - START) / (shift * SECOND), eras - 1).astype(int)
        streams.append(Stream(times, numbers[era, draw.choice(ITEMS, len(times), p=likely)]))
    name = "generated" if shift is None else "shifting"
    return Stores(name, seed, streams[0], streams[1], ITEMS)


@dataclass(frozen=True)
class Retail:
    """A year of an online shop's sales in order, and the number of rows on cancelled invoices."""

    invoices: Numbers
    codes: NDArray[np.str_]
    cancelled: int

    def stores(self, seconds: float, departments: bool = False, interarrival: float = INTERARRIVAL) -> Stores:
        """Even and odd invoices as two stores, replayed with the paper's gaps; recorded times are whole minutes."""
        codes = self.codes.astype(f"<U{DEPARTMENT}") if departments else self.codes
        known, items = np.unique(codes, return_inverse=True)
        draw = np.random.default_rng(0)
        streams = []
        for half in (0, 1):
            own = np.flatnonzero(self.invoices % 2 == half)
            times = arrivals(draw, seconds, interarrival)[: len(own)]
            streams.append(Stream(times, items[own[: len(times)]].astype(np.int64)))
        name = "retail departments" if departments else "retail items"
        return Stores(name, 0, streams[0], streams[1], len(known))


def retail(data: Path) -> Retail:
    """Read the recording; rows of cancelled invoices (numbers with a C) are counted and left out."""
    path = data / RETAIL if data.is_dir() else data
    if not path.exists():
        raise SettingError(f"{path} is not there")
    text = {"InvoiceNo": pa.string(), "StockCode": pa.string()}
    with gzip.open(path) as file:
        rows = pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(column_types=text))
    cancelled = pc.starts_with(rows["InvoiceNo"], "C")
    sold = rows.filter(pc.invert(cancelled))
    numbers = pc.replace_substring_regex(sold["InvoiceNo"], "[^0-9]", "").cast(pa.int64())
    return Retail(
        numbers.to_numpy(),
        np.array(sold["StockCode"].to_pylist(), dtype=np.str_),
        rows.num_rows - sold.num_rows,
    )


def all_stores(options: Options, seconds: float, interarrival: float = INTERARRIVAL) -> Iterator[Stores]:
    """A generated pair of stores for each seed, and the retail pairs if the recording is available."""
    yield from (generated(seconds, seed, interarrival) for seed in range(options.seeds))
    if options.data is not None:
        shop = retail(options.data)
        yield shop.stores(seconds, interarrival=interarrival)
        yield shop.stores(seconds, departments=True, interarrival=interarrival)
