"""The scan in Polars: conditional sums over shared slices. Only this module imports Polars, which is optional."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.peers.answers import Answers, add_up, columns, paired_edges, slices_of
from benchmarks.peers.in_polars import CHUNK
from benchmarks.trades import TradingHour
from benchmarks.workloads import BenchQuery, Predicate, load


def frame_of(trades: pa.Table) -> pl.DataFrame:
    """The columns that the queries need, with the quantities computed ahead."""
    wanted = ("time", "volume", "value", "change", "r3000", "r2000", "r1000")
    data = columns(trades)
    return pl.DataFrame({name: data[name] for name in wanted}).rechunk()


def answer(frame: pl.DataFrame, queries: Sequence[BenchQuery], chunk: int = CHUNK) -> tuple[float, Answers]:
    """Seconds and answers: slices, partial sums and windows, for `chunk` queries at a time."""
    started = time.perf_counter()
    answers: Answers = {}
    for start in range(0, len(queries), chunk):
        part = _answer_chunk(frame, queries[start : start + chunk])
        answers |= {start + number: windows for number, windows in part.items()}
    return time.perf_counter() - started, answers


def _answer_chunk(frame: pl.DataFrame, queries: Sequence[BenchQuery]) -> Answers:
    times = frame["time"].to_numpy()
    span = int(times[0]), int(times[-1])
    edges = paired_edges((query.window for query in queries), *span)
    # If it knows that the slices are sorted, Polars sums runs instead of hashing: four times as fast. This form
    # of a conditional sum is the fastest: filter(), a product and nulls take two to four times as long.
    slices = pl.Series("slice", slices_of(times, edges)).set_sorted()
    sums = [
        pl.when(_condition(query.predicate)).then(pl.col("value")).otherwise(0.0).sum().alias(f"q{number}")
        for number, query in enumerate(queries)
    ]
    found = frame.lazy().with_columns(slices).group_by("slice", maintain_order=True).agg(sums).collect()
    by_query = (found[f"q{number}"].to_numpy() for number in range(len(queries)))
    return add_up(queries, by_query, found["slice"].to_numpy().astype(np.int64), edges, span)


def _condition(predicate: Predicate | None) -> pl.Expr:
    if predicate is None:
        return pl.lit(True)
    member = pl.col(predicate.member) if predicate.is_member else ~pl.col(predicate.member)
    quantity = pl.col(predicate.quantity)
    compared = quantity > predicate.constant if predicate.op == ">" else quantity < predicate.constant
    return member & compared


def main(arguments: list[str]) -> None:
    """Run in a separate process and print the seconds of each repetition as JSON."""
    directory, workload, size, seed, repeats, chunk = arguments
    frame = frame_of(pa.concat_tables(TradingHour(Path(directory)).batches()))
    queries = load(workload, int(size))[int(seed)]
    answer(frame, queries[:16])  # a warm-up
    print(json.dumps([answer(frame, queries, int(chunk))[0] for _ in range(int(repeats))]))


if __name__ == "__main__":
    main(sys.argv[1:])
