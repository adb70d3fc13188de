"""A page of queries with a preference, without Spark: what arrived, what to probe, and what is left.

The driver decides from summaries alone where the budget of a page goes; whoever holds the tuples, the driver
or a task with the files of a partition, then makes those probes (`found`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.elements import Summary
from transom.partial.predicates import evaluate
from transom.promising.joins import Values, join_regions, probed, values_of
from transom.promising.regions import Regions, spent
from transom.promising.representation import Arrived, Representation, arrived, bucket_of, together
from transom.promising.selections import PageCells, counts_of, looked_at, page_cells
from transom.promising.tuples import Tuples
from transom.sql.preferred import Preferred, Side
from transom.sql.promise import Column, leaves
from transom.sql.query import Scalar, scalars_of
from transom.state.preferring import Coverage, PreferredState, Preferring, SummaryState, TupleRun
from transom.state.shards import ShardRef

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NUMBER = "number"  # the column with the summarized value as a number, where buckets go by that
MOST_RUNS = 8  # of about one size, before they are merged
MOST_PENDING = 100_000  # regions of a query that wait; the others are given up, unlikely ones first


# --- who is there -----------------------------------------------------------------------------


def resolved(shape: Summary, structure: str = "adjusting") -> Summary:
    """A summary whose structure is settled: the given one, where it is the engine's to choose."""
    return replace(shape, structure=structure) if shape.structure == "auto" else shape


def settled(
    known: Preferring,
    summaries: Mapping[str, tuple[Summary, int]],
    queries: Mapping[str, tuple[Preferred, int]],
) -> Preferring:
    """With states for those that joined, without those that left; each is given with its first page."""
    kept = {
        name: own
        for name, own in known.summaries.items()
        if name in summaries and own.since == summaries[name][1]
    }
    for name, (shape, since) in summaries.items():
        if name not in kept:
            kept[name] = SummaryState(Representation.new(resolved(shape)), since)
    preferring = {
        name: own for name, own in known.queries.items() if name in queries and own.since == queries[name][1]
    }
    for name, (query, since) in queries.items():
        if name not in preferring:
            preferring[name] = PreferredState(tuple(Regions.none() for _ in query.sides), since)
    return Preferring(kept, preferring)


@dataclass(frozen=True)
class Wanted:
    """What is kept of a summary's tuples: columns of the stream, and scalars that Spark computes.

    `numbers` are the columns whose means a promise reads, `guides` the scalars that are computed of the
    summarized column alone.
    """

    columns: tuple[str, ...]
    computed: tuple[str, ...]
    numbers: tuple[str, ...]
    guides: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The names under which they are kept: `.item` for a column, `=a + 1` if computed."""
        return [*(f".{column}" for column in self.columns), *(f"={text}" for text in self.computed)]


def wanted(shape: Summary, queries: Mapping[str, Preferred]) -> Wanted:
    """What the queries that read a summary need of its tuples."""
    columns, computed = {shape.column: None}, dict[str, None]()
    numbers, guides = dict[str, None](), dict[str, None]()
    for query in queries.values():
        for side in (side for side in query.sides if side.summary == shape.name):
            columns |= dict.fromkeys(side.columns)
            guides |= {scalar.sql: None for scalar in scalars_of(side.guide) if scalar.column is None}
            for scalar in _scalars(query, side):
                (columns if scalar.column is not None else computed)[scalar.column or scalar.sql] = None
        if len(query.sides) == 1 and query.sides[0].summary == shape.name:
            read = (leaf.column for leaf in leaves(query.promise) if isinstance(leaf, Column))
            numbers |= dict.fromkeys(column for column in read if column != shape.column)
    return Wanted(tuple(columns), tuple(computed), tuple(numbers), tuple(guides))


def _scalars(query: Preferred, side: Side) -> list[Scalar]:
    arguments = [figure.argument for figure in query.figures if figure.argument is not None]
    return [*scalars_of(side.where), *arguments]


def kept_as(scalar: Scalar) -> str:
    """The name under which a scalar is kept with the tuples."""
    return f"={scalar.sql}" if scalar.column is None else f".{scalar.column}"


# --- what arrives -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrival:
    """What rows of a page came to for one summary; those of the partitions of a page add up.

    For each of the distinct `values`, which are numbers where they can be, there is the summarized column's
    value, whatever guides compute of it, and the means of other columns. The tuples themselves are on the
    driver (`near`) or in files (`far`).
    """

    arrived: Arrived
    values: Values
    column: pa.Array
    rows: int
    low: int
    high: int
    guides: Mapping[str, pa.Array] = field(default_factory=dict)
    means: Mapping[str, Floats] = field(default_factory=dict)
    near: TupleRun | None = None
    far: ShardRef | None = None


def tuples_of(table: pa.Table, shape: Summary, want: Wanted, page: int) -> Tuples:
    """The tuples that rows of a page are, given with key, time, and at the end what is wanted of them."""
    keys = table["key"].to_numpy().view(np.uint64)
    numbers = numbers_of(table[NUMBER]) if shape.between is not None else None
    columns = {
        "key": pa.array(keys),
        "bucket": pa.array(bucket_of(shape, keys, numbers), pa.int32()),
        "time": table["time"],
        "page": pa.array(np.full(table.num_rows, page, np.int64)),
    }
    if numbers is not None:
        columns[NUMBER] = pa.array(numbers)
    first = table.num_columns - len(want.names)
    columns |= {name: table.column(first + i) for i, name in enumerate(want.names)}
    return Tuples.of(pa.table(columns))


def arrival_of(shape: Summary, tuples: Tuples, want: Wanted) -> Arrival:
    """What tuples come to."""
    runs = tuples.by_key
    counts = np.bincount(runs.codes // len(tuples), minlength=len(runs.keys))
    first = pa.array(runs.rows[np.cumsum(counts) - counts])  # a tuple of each value
    column = tuples.table[f".{shape.column}"].combine_chunks().take(first)
    guides = {text: tuples.table[f"={text}"].combine_chunks().take(first) for text in want.guides}
    which = np.repeat(np.arange(len(counts)), counts)
    means = {
        name: np.bincount(which, weights=numbers_of(tuples.table[f".{name}"])[runs.rows]) / counts
        for name in want.numbers
    }
    made = arrived(shape, tuples.time, tuples.key, tuples.bucket)
    values = values_of(tuples, numbers_of(tuples.table[NUMBER if shape.between else f".{shape.column}"]))
    low, high = int(tuples.time.min()), int(tuples.time.max())
    return Arrival(made, values, column, len(tuples), low, high, guides, means)


def all_arrived(parts: Sequence[Arrival]) -> Arrival:
    """What the partitions of a page came to; none has a value that another has."""
    values = Values(
        **{
            one.name: np.concatenate([getattr(part.values, one.name) for part in parts])
            for one in fields(Values)
        }
    )
    return Arrival(
        together([part.arrived for part in parts]),
        values,
        pa.concat_arrays([part.column for part in parts]),
        sum(part.rows for part in parts),
        min(part.low for part in parts),
        max(part.high for part in parts),
        {text: pa.concat_arrays([part.guides[text] for part in parts]) for text in parts[0].guides},
        {name: np.concatenate([part.means[name] for part in parts]) for name in parts[0].means},
    )


def with_arrival(summary: SummaryState, arrival: Arrival) -> SummaryState:
    """A summary with a page's tuples in it."""
    known = summary.representation.inserted(arrival.arrived, arrival.high)
    return replace(
        summary,
        representation=known,
        near=summary.near if arrival.near is None else (*summary.near, arrival.near),
        far=summary.far if arrival.far is None else (*summary.far, arrival.far),
        came=summary.came + arrival.rows,
        late=summary.late + arrival.rows - int(counts_of(arrival.arrived, known).sum()),
    )


def tidied(summary: SummaryState) -> SummaryState:
    """A summary without the tuples that it has let go, and with its runs made few."""
    floor = summary.representation.floor
    near, far = list(summary.near), summary.far
    if floor is not None:
        near = [run for run in near if run.rows and int(run.tuples.time.max()) >= floor]
        far = tuple(ref for ref in far if ref.held[0][0][1] >= floor)
    return replace(summary, near=_merged(near, floor), far=far)


def _merged(runs: Sequence[TupleRun], floor: int | None) -> tuple[TupleRun, ...]:
    """Runs with many of about one size made into one, so that a tuple is moved seldom and runs stay few."""
    runs = sorted(runs, key=lambda run: -run.rows)
    while len(runs) > MOST_RUNS and runs[-MOST_RUNS].rows <= MOST_RUNS * (runs[-1].rows + 1):
        small, runs = runs[-MOST_RUNS:], runs[:-MOST_RUNS]
        runs.append(TupleRun(in_one([run.tuples for run in small]).since(floor)))
        runs.sort(key=lambda run: -run.rows)
    return tuple(run for run in runs if run.rows)


def in_one(parts: Sequence[Tuples]) -> Tuples:
    """Tuples of pages that kept different columns: null where one was not kept."""
    if len(parts) == 1:
        return parts[0]
    return Tuples.of(pa.concat_tables([part.table for part in parts], promote_options="default"))


# --- what is promising ------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """Probes to be made for a query: `taken` of each of some regions with arriving tuples of one side.

    The first `fresh` regions are of the page's own tuples, the others wait since earlier pages.
    """

    name: str
    query: Preferred
    side: int
    regions: Regions
    taken: Ints
    fresh: int
    since: int  # the query sees tuples that came with this page or later
    keys: tuple[str, ...]  # the summarized columns of the sides

    def of(self, mask: Mask) -> Probe:
        """The probes of some of the regions."""
        return replace(self, regions=self.regions.where(mask), taken=self.taken[mask])

    @property
    def skipped(self) -> float:
        """The output that is expected of the probes that are not made: of the page, if it has brought any."""
        some = slice(self.fresh or None)
        left = self.regions.left[some] - self.taken[some]
        return float((self.regions.expected[some] * left / np.maximum(self.regions.probes[some], 1)).sum())


class Planning:
    """Decides what queries probe, given the summaries with what arrived in them."""

    def __init__(self, known: Preferring, arrivals: Mapping[str, Arrival], page: int):
        self.known, self.arrivals, self.page = known, arrivals, page
        self._cells: dict[tuple[str, int | None], PageCells] = {}  # what selections have in common

    def planned(self, name: str, query: Preferred, budget: int | None) -> list[Probe]:
        """What a query probes of what arrived with the page, and of what it has put off."""
        fresh = [
            self._regions(query, number) if side.summary in self.arrivals else Regions.none()
            for number, side in enumerate(query.sides)
        ]
        waiting = self.waiting(name, query)
        now, later = spent(
            Regions.concatenated(fresh), Regions.concatenated(waiting), query.preference.order, budget
        )
        parts = _split(now, fresh), _split(later, waiting)
        shapes = [self.known.summaries[side.summary].representation.shape for side in query.sides]
        keys, since = tuple(shape.column for shape in shapes), self.known.queries[name].since
        probes = []
        for side, (new, old) in enumerate(zip(fresh, waiting, strict=True)):
            taken = np.concatenate([parts[0][side], parts[1][side]])
            both = Regions.concatenated([new, old])
            probes.append(Probe(name, query, side, both, taken, len(new), since, keys))
        return probes

    def waiting(self, name: str, query: Preferred) -> list[Regions]:
        """What a query has put off, as far as its tuples are all kept and may be in the window still."""
        found = []
        for side, regions in enumerate(self.known.queries[name].pending):
            states = [self.known.summaries[one.summary].representation for one in query.sides]
            own, other = states[side], states[len(states) - 1 - side]
            window = query.preference.window
            now = max((one.high for one in states if one.high is not None), default=None)
            since = None if window is None or now is None else now - window
            found.append(regions.reachable(other.floor, own.floor, since))
        return found

    def concluded(self, name: str, query: Preferred, probes: Sequence[Probe], rows: int) -> PreferredState:
        """A query's state after its probes were made and so many rows came of them."""
        own = self.known.queries[name]
        left = [probe.regions.after(probe.taken) for probe in probes]
        kept = [_most(regions) for regions in left]
        lost = _awaited(own.pending) - _awaited(self.waiting(name, query)) + _awaited(left) - _awaited(kept)
        made = sum(int(probe.taken.sum()) for probe in probes)
        done = Coverage(own.done.probes + made, own.done.produced + rows)
        return replace(own, pending=tuple(kept), done=done, lost=own.lost + lost)

    def _regions(self, query: Preferred, number: int) -> Regions:
        """The regions of what arrived on a side of a query, with their promises."""
        side = query.sides[number]
        arrival, own = self.arrivals[side.summary], self.known.summaries[side.summary].representation
        matching = _matching(side, arrival)
        if len(query.sides) == 1:
            cells = self._page_cells(side.summary, query.preference.window)
            return cells.regions(matching, query.preference, query.promise)
        other = self.known.summaries[query.sides[1 - number].summary].representation
        matching &= _truth(arrival.column.is_valid())  # NULL is equal to nothing
        if other.high is None or not matching.any():
            return Regions.none()
        values = arrival.values
        if not matching.all():
            values = Values(**{one.name: getattr(values, one.name)[matching] for one in fields(Values)})
        return join_regions(values, self.page, own, other, query.preference, query.promise)

    def _page_cells(self, summary: str, window: int | None) -> PageCells:
        if (summary, window) not in self._cells:
            arrival, own = self.arrivals[summary], self.known.summaries[summary].representation
            counts = counts_of(arrival.arrived, own)
            self._cells[summary, window] = page_cells(
                arrival.values, self.page, own, counts, window, arrival.means
            )
        return self._cells[summary, window]


def _matching(side: Side, arrival: Arrival) -> Mask:
    """Which of the values that arrived may match a side's conditions, as far as the summary can tell."""
    if side.guide is None:
        return np.ones(len(arrival.column), bool)
    return _truth(
        evaluate(
            side.guide,
            lambda scalar: arrival.column if scalar.column is not None else arrival.guides[scalar.sql],
        )
    )


def numbers_of(column: pa.Array | pa.ChunkedArray) -> Floats:
    """Values as numbers, for promises; what is no number promises nothing."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.zeros(len(column))
    return np.nan_to_num(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy())


# --- the probes themselves --------------------------------------------------------------------


class Reader(Protocol):
    """Whoever holds the tuples of summaries."""

    def pages(self, summary: str, pages: Ints) -> Tuples:
        """The tuples that came in some pages."""
        ...

    def buckets(self, summary: str, buckets: Ints) -> Tuples:
        """The tuples of some value buckets."""
        ...


def found(probe: Probe, read: Reader) -> pa.Table:
    """The rows or pairs that a query's probes find, by whoever holds the tuples of the regions' buckets.

    Columns are those of the sides, as `0.item` and `1.ts`, and `0time` and `1time`.
    """
    some = probe.of(probe.taken > 0)
    sides = probe.query.sides
    own = read.pages(sides[probe.side].summary, np.unique(some.regions.page))
    if len(sides) == 1:
        return _kept(probe, [own.table.take(pa.array(looked_at(some.regions, some.taken, own)[0]))])
    other = read.buckets(sides[1 - probe.side].summary, np.unique(some.regions.bucket))
    mine, theirs = probed(some.regions, some.taken, own, other, probe.query.preference.window)
    tables = [own.table.take(pa.array(mine)), other.table.take(pa.array(theirs))]
    return _kept(probe, tables if probe.side == 0 else tables[::-1])


def _kept(probe: Probe, tables: Sequence[pa.Table]) -> pa.Table:
    """Those for which the query's conditions hold, with the columns that it reads of each side."""
    keep = np.ones(tables[0].num_rows, bool)
    for side, table in zip(probe.query.sides, tables, strict=True):
        keep &= table["page"].to_numpy() >= probe.since
        if side.where is not None:
            keep &= _truth(evaluate(side.where, _columns(table)))
    if len(tables) == 2:  # different values hardly ever have one key
        one, other = (table[f".{key}"] for table, key in zip(tables, probe.keys, strict=True))
        equal = _truth(pc.equal(one, other))
        if pa.types.is_floating(one.type):  # to Spark, NaN is equal to itself
            equal |= _truth(pc.is_nan(one)) & _truth(pc.is_nan(other))
        keep &= equal
    mask = pa.array(keep)
    columns: dict[str, pa.ChunkedArray] = {}
    for number, (side, table) in enumerate(zip(probe.query.sides, tables, strict=True)):
        names = ["time", *(f".{column}" for column in side.columns)]
        names += [kept_as(scalar) for scalar in _scalars(probe.query, side)]
        columns |= {f"{number}{name}": table[name].filter(mask) for name in names}
    return pa.table(columns)


def _columns(table: pa.Table) -> Callable[[Scalar], pa.Array]:
    def column(scalar: Scalar) -> pa.Array:
        name = kept_as(scalar)
        if name not in table.column_names:  # of tuples that came before the query did
            return pa.nulls(table.num_rows, scalar.type)
        return table[name].combine_chunks()

    return column


def _truth(values: pa.Array | pa.ChunkedArray) -> Mask:
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(bool)


def _split(taken: Ints, parts: Sequence[Regions]) -> list[Ints]:
    return np.split(taken, np.cumsum([len(part) for part in parts])[:-1])


def _awaited(parts: Sequence[Regions]) -> float:
    """The output that is expected of what is left of some regions."""
    return sum(float(part.awaited.sum()) for part in parts)


def _most(regions: Regions) -> Regions:
    """As many regions as may wait."""
    if len(regions) <= MOST_PENDING:
        return regions
    order = np.lexsort((-regions.awaited, ~regions.likely))
    return regions.where(np.sort(order[:MOST_PENDING]))
