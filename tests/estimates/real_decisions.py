"""Early decisions on recorded data, by hand: `python -m tests.estimates.real_decisions trades FILE`."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tests.estimates.decision_streams import Stream, Window, run
from tests.estimates.streams import Floats
from transom.columns.arrays import Ints

CONFIDENCES = (0.8, 0.95)


def recorded(time: Floats, group: Ints, values: Floats, slide: float) -> tuple[Stream, Ints]:
    """Recorded rows as a stream of tumbling windows that have rows, and the ends of these windows."""
    wid, first = np.unique((time // slide).astype(np.int64), return_index=True)
    bounds = [*first.tolist(), len(time)]

    def stream(rng: np.random.Generator, window: int) -> Window:
        rows = slice(bounds[window], bounds[window + 1])
        return time[rows] / slide - wid[window], group[rows], values[rows]

    return stream, ((wid + 1) * slide * 1e6).astype(np.int64)


def trades(file: str) -> tuple[Stream, Ints, float]:
    """The volume of each symbol by minute."""
    table = csv.read_csv(file)
    table = table.take(pc.sort_indices(table["ts_ms_ny"]))
    time, group = table["ts_ms_ny"].to_numpy() / 1000, table["symbol"].dictionary_encode().combine_chunks()
    volume = table["volume"].cast(pa.float64()).to_numpy()
    return *recorded(time, group.indices.to_numpy().astype(np.int64), volume, 60.0), 100_000.0


def retail(file: str) -> tuple[Stream, Ints, float]:
    """The sales of each country by hour; cancelled invoices are negative."""
    table = csv.read_csv(file)
    seconds = table["InvoiceDate"].cast(pa.timestamp("s")).cast(pa.int64()).to_numpy().astype(np.float64)
    group = table["Country"].dictionary_encode().combine_chunks().indices.to_numpy().astype(np.int64)
    amount = table["Quantity"].to_numpy() * table["UnitPrice"].to_numpy()
    order = np.argsort(seconds, kind="stable")
    return *recorded(seconds[order], group[order], amount[order], 3600.0), 2_000.0


def flights() -> tuple[Stream, Ints, float]:
    """The delays of each origin by hour of the scheduled departure, as far as flights leave within that hour."""
    from transom.cli.flights import flights as table_of_flights

    table = table_of_flights()
    sched = table["sched"].cast(pa.int64()).to_numpy() / 1e6
    left = table["left"].cast(pa.int64()).to_numpy() / 1e6
    delay = pc.fill_null(table["delay"].cast(pa.float64()), 0.0).to_numpy()
    group = table["origin"].dictionary_encode().combine_chunks().indices.to_numpy().astype(np.int64)
    # A window is open for two more hours: the time of a row is when it comes, as a part of these three.
    hour = sched // 3600
    part = ((left - hour * 3600) / 3).clip(0, 3599.0)
    order = np.lexsort((part, hour))
    time = (hour * 3600 + part)[order]
    return *recorded(time, group[order], delay[order], 3600.0), 300.0


def main() -> None:
    """Print a row for each confidence."""
    name, *file = sys.argv[1:]
    stream, ends, limit = {"trades": trades, "retail": retail, "flights": flights}[name](*file)
    windows = min(len(ends), 500)
    for confidence in CONFIDENCES:
        score = run(stream, limit, confidence, windows, seed=0, ends=ends).report.total
        print(
            f"| {name} | {confidence:.0%} | {score.confirmed + score.withdrawn:,} | {score.false_alarm_rate:.1%} "
            f"| {score.miss_rate:.1%} | {score.lead_slides:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
