"""The workloads: sets of queries as data files, drawn once with `python -m benchmarks.workloads`.

"On-the-fly sharing", section 6 and tables 6 and 8. A: different windows, no predicates. B: different
predicates, one window. C regular: each of sqrt(n) predicates with each of sqrt(n) windows. C low sharing:
no two queries have a window or a predicate in common.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.trades import TradingHour, trading_hour

DIRECTORY = Path(__file__).parent / "workloads"
SIZES = (16, 32, 64, 128, 256)
SQUARES = (16, 36, 64, 144, 256)
LARGE = (1_024, 10_000)
SEEDS = 10
MEMBERS = ("r3000", "r2000", "r1000")
QUANTITIES = {
    "volume": "T.vol",
    "value": "T.price * T.vol",
    "change": "abs(T.price - C.cp) / C.cp",
}
_ZIPPED = 200_000  # bytes; a larger file is zipped


@dataclass(frozen=True, order=True)
class Window:
    """A sliding window, in milliseconds."""

    range_ms: int
    slide_ms: int


@dataclass(frozen=True, order=True)
class Predicate:
    """Member AND Value: a test of index membership, and a comparison of a quantity with a constant."""

    member: str
    is_member: bool
    quantity: str
    op: str
    constant: float


@dataclass(frozen=True)
class BenchQuery:
    """A query of the template: a window and an optional predicate."""

    window: Window
    predicate: Predicate | None = None


def sql(query: BenchQuery) -> str:
    """The paper's query 4 with the window and the predicate filled in.

    >>> sql(BenchQuery(Window(754213, 300000), Predicate("r3000", True, "volume", ">", 300)))[-43:]
    'X.symbol AND X.r3000 = true AND T.vol > 300'
    """
    window, predicate = query.window, query.predicate
    bracket = f"[RANGE {window.range_ms} milliseconds SLIDE {window.slide_ms} milliseconds]"
    text = (
        f"SELECT sum(T.price * T.vol) AS value FROM trades {bracket} T, closing C, members X "
        "WHERE T.symbol = C.symbol AND T.symbol = X.symbol"
    )
    if predicate is None:
        return text
    member = f"X.{predicate.member} = {'true' if predicate.is_member else 'false'}"
    value = f"{QUANTITIES[predicate.quantity]} {predicate.op} {predicate.constant!r}"
    return f"{text} AND {member} AND {value}"


def texts(queries: Iterable[BenchQuery]) -> dict[str, str]:
    """The SQL of queries, named q0, q1, ..."""
    return {f"q{number}": sql(query) for number, query in enumerate(queries)}


# --- the files ---


@cache
def load(workload: str, size: int) -> tuple[tuple[BenchQuery, ...], ...]:
    """The query sets of a workload and a size, one for each seed."""
    plain = DIRECTORY / f"{workload}_{size}.json"
    zipped = plain.with_suffix(".json.gz")
    content = json.loads(gzip.decompress(zipped.read_bytes()) if zipped.exists() else plain.read_bytes())
    return tuple(tuple(_queries(drawn, content["pairing"])) for drawn in content["seeds"])


def _queries(drawn: dict[str, Any], pairing: str) -> Iterator[BenchQuery]:
    windows = [Window(*window) for window in drawn["windows"]]
    predicates = [None if p is None else Predicate(*p) for p in drawn["predicates"]]
    pairs = product(windows, predicates) if pairing == "each" else zip(windows, predicates, strict=True)
    for window, predicate in pairs:
        yield BenchQuery(window, predicate)


def save(workload: str, size: int, pairing: str, seeds: list[dict[str, Any]]) -> None:
    """Write a workload's file; equal content gives equal bytes."""
    rows = ",\n".join(json.dumps(drawn, separators=(",", ":")) for drawn in seeds)
    text = (
        f'{{"workload":"{workload}","queries":{size},"pairing":"{pairing}","seeds":[\n{rows}\n]}}\n'.encode()
    )
    path = DIRECTORY / f"{workload}_{size}.json"
    if len(text) > _ZIPPED:
        path.with_suffix(".json.gz").write_bytes(gzip.compress(text, mtime=0))
    else:
        path.write_bytes(text)


# --- drawing them ---


class Quantiles:
    """Sorted samples of the quantities, to draw constants from."""

    def __init__(self, hour: TradingHour):
        trades = pa.concat_tables(hour.batches())
        price, vol, cp = (trades[name].to_numpy().astype(float) for name in ("price", "vol", "cp"))
        values = {"volume": vol, "value": price * vol, "change": np.abs(price - cp) / cp}
        self.sorted = {name: np.sort(column) for name, column in values.items()}

    def constant(self, rng: np.random.Generator, quantity: str) -> float:
        """A constant above 5 % to 95 % of the trades, as far as ties allow."""
        values = self.sorted[quantity]
        value = float(values[int(rng.uniform(0.05, 0.95) * len(values))])
        if quantity == "volume":
            # Half of the volumes are 100: a constant between two round lots never selects all trades or none.
            return int(value) + int(rng.integers(1, 100))
        return round(value, 2) if quantity == "value" else float(f"{value:.6g}")


Draw = Callable[[np.random.Generator], Any]


def windows_to(unit_ms: int) -> Draw:
    """Ranges from [600, 900] and slides from [300, 600] seconds, uniform in steps of a unit.

    The workloads use milliseconds: the paper counts 1,462,391 final aggregations where 256 queries share
    paired windows, 714 slices for an average window of 750 s, and 1,144 when paned. Edges on whole seconds
    allow at most 750, and about 510 for 256 queries.
    """

    def draw(rng: np.random.Generator) -> tuple[int, int]:
        range_ = rng.integers(600_000 // unit_ms, 900_000 // unit_ms, endpoint=True)
        slide = rng.integers(300_000 // unit_ms, 600_000 // unit_ms, endpoint=True)
        return int(range_) * unit_ms, int(slide) * unit_ms

    return draw


def predicates_of(quantiles: Quantiles) -> Draw:
    """Every choice of table 8 is equally likely."""

    def draw(rng: np.random.Generator) -> tuple[Any, ...]:
        quantity = str(rng.choice(list(QUANTITIES)))
        member, is_member = str(rng.choice(MEMBERS)), bool(rng.random() < 0.5)
        op = str(rng.choice([">", "<"]))
        return member, is_member, quantity, op, quantiles.constant(rng, quantity)

    return draw


def different(rng: np.random.Generator, count: int, draw: Draw) -> list[Any]:
    """Draw until there are this many different values."""
    found: dict[Any, None] = {}
    while len(found) < count:
        found[draw(rng)] = None
    return list(found)


@dataclass(frozen=True)
class Recipe:
    """How many windows and predicates a workload's query sets have, and how they are paired."""

    workload: str
    size: int
    windows: int
    draw_window: Draw
    predicates: int
    pairing: str = "each"  # window with each predicate, or one to one
    seeds: int = SEEDS

    def draw(self, seed: int, draw_predicate: Draw) -> dict[str, Any]:
        """The query set of a seed."""
        rng = np.random.default_rng([*self.workload.encode(), self.size, seed])
        windows = different(rng, self.windows, self.draw_window)
        return {"windows": windows, "predicates": different(rng, self.predicates, draw_predicate) or [None]}


def recipes() -> Iterator[Recipe]:
    """Every workload in every size; large workloads have one query set, because they take long."""
    for n in SIZES:
        yield Recipe("A", n, n, windows_to(1), 0)
        yield Recipe("A_seconds", n, n, windows_to(1_000), 0)
        yield Recipe("B", n, 1, lambda _: (600_000, 600_000), n)
    for n in (*SQUARES, *LARGE):
        root = math.isqrt(n)
        yield Recipe("C_regular", n, root, windows_to(1), root, seeds=1 if n in LARGE else SEEDS)
    for n in (*SIZES, *LARGE):
        yield Recipe("C_low", n, n, windows_to(1), n, "one to one", 1 if n in LARGE else SEEDS)


def main() -> None:
    """Draw and write every workload."""
    draw_predicate = predicates_of(Quantiles(trading_hour()))
    for recipe in recipes():
        drawn = [recipe.draw(seed, draw_predicate) for seed in range(recipe.seeds)]
        save(recipe.workload, recipe.size, recipe.pairing, drawn)


if __name__ == "__main__":
    main()
