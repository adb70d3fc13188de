"""Random on-demand queries looked up after every batch, and what the oracle says."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pyarrow as pa

from tests.differential.cases import (
    AGGREGATES,
    CONDITIONS,
    KEYS,
    RESTS,
    Case,
    cut_into_batches,
    often,
    query,
    query_of,
    ruled,
    some,
    stream,
)
from tests.differential.engine import SCALARS, PureEngine, Row, bound, presented
from tests.differential.oracle_comparison import alike, oracle_answer, same_as_oracle
from transom.kernel.aggregate import Outcome
from transom.kernel.store_runs import fetched_runs
from transom.ondemand.cache import LookupCache
from transom.ondemand.lookup import Answer, Lookup, look_up, lookup_result
from transom.ondemand.store_specs import StoreRead
from transom.ondemand.stores import lookup_end
from transom.ondemand.structures.runs import GroupAnswers
from transom.sql import Query
from transom.sql.query import Item

BOUNDED = ["count(*)", "count(price)", "sum(price)", "sum(qty)", "avg(price)", "avg(qty)", "min(price)",
           "max(price)", "max(qty)", "sum(amount)", "min(amount)", "count(kind)",
           "sum(qty) FILTER (WHERE kind = 'a')"]  # fmt: skip
EXTREME = ["min(price)", "max(price)", "min(kind)", "max(qty)", "max(ts)", "min(amount)"]
TIMEGRAMS = ["timegram(2)", "timegram(64)", "timegram(4 BETWEEN -5 AND 100)", "timegram(8, SLICE {})",
             "timegram(BOUNDS -10, 0, 10, 50)", "timegram(3 BETWEEN 0 AND 10, SLICE {})"]  # fmt: skip


def on_demand(rng: Random, keys: list[str], where: str) -> str:
    """A query without SLIDE, from any structure."""
    size = rng.randint(1, 40)
    form, unit = rng.choice(
        [
            (f"[RANGE '{size} seconds']", "'{} seconds'"),
            (f"[RANGE {size} WATTR seq]", "{}"),
            (f"[ROWS {size}]", "{}"),
        ]
    )
    using = often(rng, "", "ordered_sharing", "naive", "timegram", "timegram", "within")
    pool = {"ordered_sharing": EXTREME, "timegram": BOUNDED, "within": BOUNDED}.get(using, AGGREGATES)
    slice = unit.format(rng.randint(1, 9))
    sliced = often(rng, "", f" USING timegram(SLICE {slice})") if using == "within" else ""
    if sliced:
        pool = [text for text in BOUNDED if text.startswith(("min", "max"))]
    text = query_of(rng, (form, ""), keys, where, pool)
    if using == "timegram":
        using = rng.choice(TIMEGRAMS).format(slice)
    if pool is not AGGREGATES:
        text = text.partition(" HAVING ")[0]
    if using == "within":
        return f"{text} WITHIN {rng.choice([1, 5, 50])}%{sliced}"
    return f"{text} USING {using}" if using else text


def looked_up(rng: Random) -> Case:
    """On-demand queries of few selections, beside others, that come and go."""
    batches = cut_into_batches(rng, stream(rng, 50), 8)
    wheres = [rng.choice(RESTS), " AND ".join(some(rng, CONDITIONS, 2))]
    groups = [some(rng, KEYS, 2) for _ in range(2)]
    queries = {}
    for i in range(rng.randint(1, 7)):
        text = on_demand(rng, rng.choice(groups), rng.choice(wheres))
        queries[f"q{i}"] = often(rng, text, query(rng))
        joins = often(rng, 0, 1, 2) % len(batches)
        batches[joins].joining.append(f"q{i}")
        leaves = joins + often(rng, len(batches), 1, 3)
        if leaves < len(batches):
            batches[leaves].leaving.append(f"q{i}")
    if any("WATTR seq" in text for text in queries.values()):
        queries["first"] = "SELECT count(*) FROM s [RANGE 10 SLIDE 10 WATTR seq]"
        batches[0].joining.append("first")
    return ruled(rng, queries, batches)


class LookingEngine(PureEngine):
    """The engine without Spark, with lookups in what it has kept, near or far."""

    lookup_cache: LookupCache

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.lookup_cache = LookupCache()
        self.brought = Outcome()

    def _outcome(self, *args: Any) -> Outcome:
        self.brought = super()._outcome(*args)
        return self.brought

    def batch(self, batch: Any) -> None:
        super().batch(batch)
        self.lookup_cache.batch_committed(self.state, self.brought.runs, self.store_sets)

    def restart(self) -> None:
        super().restart()
        self.lookup_cache = LookupCache()

    def lookup(self, key: str, length: int) -> tuple[list[Row], bool]:
        """What a query is answered now, and whether its stores have seen the whole window."""
        asked = self.compiled[key]
        end = lookup_end(asked.clock, self.state.stream("s"))
        if end is None:
            return [], True
        lookup = Lookup(asked, end - length, end)
        rows = presented(lookup_result(self._answered(lookup), self.state, SCALARS))
        return rows, lookup.is_complete(self.state)

    def _answered(self, lookup: Lookup) -> Answer:
        if not any(self.state.stores[key].on_executors for key in lookup.stores):
            return look_up(lookup, self.lookup_cache.reader(lookup, self.state))
        found = []
        for place in range(self.shelf.partitions):

            def read(key: str, store_read: StoreRead, since: int, place: int = place) -> GroupAnswers:
                runs = fetched_runs(self.shards, self.state.stores[key].refs, place)
                return store_read.structure.lookup(runs, since)

            found.append(look_up(lookup, read).table)
        return Answer(lookup, pa.concat_tables(found).combine_chunks())


def check_lookups(
    rng: Random, case: Case, restart: bool = False, seed: int | None = None, **options: Any
) -> int:
    """Every lookup after every batch is the oracle's; how many were compared."""
    try:
        return compare_lookups(rng, case, restart, **options)
    except Exception as error:
        error.add_note(f"drawn by Random({seed}), restart={restart}, {options}\n{case.queries}")
        raise


def compare_lookups(
    rng: Random,
    case: Case,
    restart: bool,
    strategy: Any = None,
    naive: bool = False,
    executor_rows: int | None = None,
) -> int:
    queries = bound(case.queries)
    engine = LookingEngine(case, queries, strategy, naive, executor_rows)
    found: list[tuple[int, str, int, list[Row], bool]] = []
    for number, batch in enumerate(case.batches):
        engine.batch(batch)
        if restart:
            engine.restart()
        for name in engine.living:
            whole = queries[name].window.range
            for length in [whole, rng.randint(1, whole)] if queries[name].is_on_demand else []:
                found.append((number, name, length, *engine.lookup(name, length)))
                batch.lookups.append((name, length))
    expected = oracle_answer(case, queries)
    assert len(expected.lookups) == len(found)
    for (number, name, length, rows, is_complete), answer in zip(found, expected.lookups, strict=True):
        assert (number, name, length) == (answer.batch_id, answer.query, answer.length)
        same_answer(queries[name], rows, is_complete, answer)
    totals = engine.state.stream("s").totals
    same_as_oracle(case, queries, engine.results, engine.late, totals, expected)
    return len(found)


def same_answer(query: Query, rows: list[Row], is_complete: bool, expected: Any) -> None:
    """The rows of a complete window are the oracle's; no window is called complete that is not.

    Stores that a query shares may have seen rows from before it joined, when its other stores have not. So HAVING may
    drop an incomplete group that the oracle, which has seen the same rows for all aggregates, keeps.
    """
    assert {row["complete"] for row in rows} <= {is_complete}
    if not rows:
        wanted = expected.whole if is_complete else [] if query.kept is not None else expected.rows
        assert not wanted, f"{query.text}\nnothing, expected {wanted}"
        return
    if not is_complete:
        assert not expected.complete, f"{query.text}\nan answer is said to be incomplete and is not"
        return
    keys = [item.name for item in query.items if item.is_key]
    ours = {tuple(repr(plain(row[key])) for key in keys): row for row in rows}
    theirs = {tuple(repr(plain(row[key])) for key in keys): row for row in expected.whole}
    assert ours.keys() == theirs.keys(), f"{query.text}\n{ours.keys()}, expected {theirs.keys()}"
    for group, row in ours.items():
        assert (row["window_start"], row["window_end"]) == expected.window
        for item in query.items:
            same_item(query, item, row, theirs[group][item.name])


def same_item(query: Query, item: Item, row: Row, exact_structure: Any) -> None:
    name = item.name
    if f"{name}_low" not in row:
        assert alike(row[name], exact_structure), (
            f"{query.text}\n{name}: {row[name]!r}, expected {exact_structure!r}"
        )
        return
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    text = f"{query.text}\n{name}: [{low!r}, {high!r}], expected {exact_structure!r}"
    if exact_structure is None:
        return
    if isinstance(exact_structure, float) and math.isnan(exact_structure):
        assert math.isnan(high), text  # NaN is above every number
        return
    assert low is not None and high is not None, text
    assert low <= exact_structure and (math.isnan(high) or exact_structure <= high), text
    within = query.using.within
    if within is not None and query.calls[int(item.sql[2:-1])].function in ("min", "max"):
        size = abs(float(exact_structure))
        assert high - low <= within * size + 1e-6 * size, text  # the ends of decimals are rounded outward


def plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value
