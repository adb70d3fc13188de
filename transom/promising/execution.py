"""Queries with a preference in a batch: rows become tuples of summaries, and budgets are spent on probes.

A small batch is inserted and probed on the driver. The rows of a large one go to partitions of the value
buckets, where tasks summarize and keep them. The driver adds the summaries, decides which regions the
budget is spent on, and tasks make the probes where the tuples are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from transom.backends.base import Backend, Frame
from transom.backends.expressions import quoted
from transom.columns.arrays import Ints, Keys
from transom.elements import Summary
from transom.ingest.batch import IngestRun
from transom.plan.planner import Planner
from transom.plan.strategy import Place
from transom.promising.answers import answer_alone, answer_query, presented_figures
from transom.promising.batch_tuples import (
    NUMBER_COLUMN,
    BatchArrival,
    TupleColumns,
    batch_tuples,
    concat_tuples,
    no_tuples,
    tuple_columns,
)
from transom.promising.combined_figures import CombinedFigures, CombinedWork, ReadTuples, combined_columns
from transom.promising.figures import window_starts
from transom.promising.found_tuples import even_places, ranked_places
from transom.promising.moved_lines import with_lines_by_value
from transom.promising.pace import FIRST_PROBES, Pace
from transom.promising.partitioned_tuples import PartitionedTuples
from transom.promising.probe_planner import ProbePlanner, is_on_executors
from transom.promising.probes import Draws, Probe, ProbeResult, make_probes
from transom.promising.read_results import ReadResults
from transom.promising.shared_selections import (
    BatchSelections,
    SelectionGroups,
    SharedAnswers,
    answer_together,
)
from transom.promising.state_updates import evicted, late_before, with_arrival
from transom.promising.structure_review import ReviewInput, StructureReview
from transom.promising.tuples import KeptTuples
from transom.promising.unmatched_tuples import AfterBatch, OuterBatch, summaries_of_outer_joins
from transom.results.preference_input import NewResults
from transom.results.result_rows import Moment, ResultBatch, Results
from transom.sql.preference_query import PreferenceQuery
from transom.state.batch_intent import BatchIntent
from transom.state.promising import Coverage, PreferenceState, PromisingState, SummaryState
from transom.storage.executor_files import ExecutorFiles

ROUNDS, EXECUTOR_ROUNDS = 40, 3  # rounds per batch; each spends the rest of the budget and plans more probes
EXECUTOR_FACTOR = 32
ROWS_WITHOUT_JOB = 2_000  # up to here rows are fetched faster without a job


Preferences = Mapping[str, PreferenceQuery]  # queries with a preference, by name


class _Made:
    """A query's probes in a batch: those of the last round, and the results and the cost of all rounds."""

    def __init__(self, probes: list[Probe], budget: int | None, batch_id: int):
        self.draws = Draws.of(probes, batch_id) if probes[0].query.samples else None
        self.probes, self.budget, self.charge, self.on_executors = probes, budget, 0, False
        self._tables: list[pa.Table] = []

    @property
    def left(self) -> int | None:
        """The rest of the budget; None without a budget."""
        return None if self.budget is None else self.budget - self.charge

    def add(self, side: int, done: ProbeResult) -> None:
        if done.table.num_columns:
            self._tables.append(done.table)
        self.charge += done.charge
        if self.draws is not None:
            self.draws.add(self.probes[side].regions, done.made)
        self.probes[side] = replace(self.probes[side], taken=done.made, whole=None)

    @property
    def table(self) -> pa.Table | None:
        return pa.concat_tables(self._tables, promote_options="default") if self._tables else None

    def goes_on(self, rounds: int) -> bool:
        """Whether both budget and probes are left."""
        if not self.left or (self.on_executors and rounds >= EXECUTOR_ROUNDS):
            return False
        return any((probe.regions.left > probe.taken).any() for probe in self.probes)


@dataclass(frozen=True)
class PromisingOutput:
    """The state after a batch, its results, and those of queries that others read."""

    state: PromisingState
    batches: Sequence[ResultBatch]
    new: Mapping[str, NewResults]


@dataclass
class _Answers:
    """The states of queries after a batch, its results, and those that other queries read."""

    queries: dict[str, PreferenceState]
    read: ReadResults
    batches: list[ResultBatch] = field(default_factory=list)

    def add(self, name: str, table: pa.Table, times: Callable[[], Ints]) -> None:
        """Add the results of a query; `times` gives the event times of those that are new."""
        if table.num_rows:
            self.batches.append(ResultBatch([name], np.array([0, table.num_rows]), table))
            if name in self.read.read:
                self.read.add(name, table, times())


@dataclass(frozen=True)
class _BatchCost:
    """The cost of a batch for each of its queries, except that of writing their results."""

    batch_id: int
    queries: int
    rows: int  # of all queries' results
    probes: int
    probing: float
    fixed: float


class Promising:
    """The part of the batch loop for summaries and the queries that they guide."""

    def __init__(
        self,
        backend: Backend,
        files: ExecutorFiles,
        planner: Planner,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.clock = clock
        self.backend, self.planner, self.place = backend, planner, planner.strategy.place
        self.tuples, self.pace = PartitionedTuples(files, planner), Pace()
        self.review = StructureReview(planner.strategy.limits)
        self.selections = SelectionGroups()
        self._inserting = 0.0
        self._cost: _BatchCost | None = None  # of a batch whose results are not written yet

    # --- when a batch begins ---

    def probes(self, queries: Preferences) -> dict[str, int]:
        """The probes of the next batch, for queries whose budget is a time."""
        timed = ((name, query.preference.time) for name, query in queries.items())
        return {name: self.pace.probes(time) for name, time in timed if time is not None}

    # --- rows become tuples ---

    def arrive(
        self, run: IngestRun, limit: int | None, intent: BatchIntent, queries: Preferences
    ) -> dict[str, BatchArrival]:
        """The arrival of a batch's accepted rows in each summary of their stream."""
        arrivals: dict[str, BatchArrival] = {}
        stream = run.batch.rules.clock.stream
        pinned = summaries_of_outer_joins(queries)
        started = self.clock()
        for name, summary_state in run.batch.state.promising.summaries.items():
            shape = summary_state.representation.shape
            if shape.stream != stream:
                continue
            want = tuple_columns(shape, queries)
            frame = tuple_frame(run, limit, shape, want)
            if name in pinned or self._is_on_driver(run):
                is_small = intent.reference.get("rows", ROWS_WITHOUT_JOB + 1) <= ROWS_WITHOUT_JOB
                table = frame.to_table(few=is_small)
                arrival = _driver_arrival(table, summary_state, want, intent.batch_id)
            else:
                arrival = self.tuples.arrive(frame, summary_state, want, intent.batch_id)
            if arrival is not None:
                arrivals[name] = arrival
        self._inserting = self.clock() - started if arrivals else 0.0
        return arrivals

    def _is_on_driver(self, run: IngestRun) -> bool:
        return run.batch.on_driver if self.place is Place.AUTO else self.place is Place.DRIVER

    # --- budgets are spent ---

    def process(
        self,
        intent: BatchIntent,
        queries: Preferences,
        summaries_by_name: Mapping[str, Summary],
        state: PromisingState,
        arrivals: Mapping[str, BatchArrival],
        at: int,
        read: Collection[str] = (),
        newest: Mapping[str, int | None] = MappingProxyType({}),
        ended: Collection[str] = (),
    ) -> PromisingOutput:
        """Insert the tuples of a batch and make its probes. The results of queries in `read` are read by others.

        `newest` are the newest times of the streams before the batch. The results of queries in `ended` end with it.
        """
        started = self.clock()
        before, living = state, queries
        to_files = [name for name, arrival in arrivals.items() if arrival.file is not None]
        before = _divided(before, living, [name for name in to_files if not before.summaries[name].files])
        summaries = {
            name: with_arrival(summary_state, arrivals[name]) if name in arrivals else summary_state
            for name, summary_state in before.summaries.items()
        }
        budgets = {name: _budget(intent, name, query) for name, query in living.items()}
        promising_state = PromisingState(summaries, before.queries)
        selections = BatchSelections(promising_state, arrivals, living, self.selections)
        tuples, moment = DriverTuples(promising_state), Moment(intent.batch_id, made=at)
        planner = ProbePlanner(promising_state, arrivals, intent.batch_id, tuples, selections.rows)
        indexed = self.clock()
        together = SharedAnswers()
        if planner.by_key is not None:
            together = answer_together(selections, planner.by_key, budgets, moment, self.backend.scalars)
        began = self.clock()
        plans = {
            name: planner.plan(name, query, budgets[name])
            for name, query in living.items()
            if name not in together.queries
            and not query.is_combined
            and (intent.resumes or any(side.summary in arrivals for side in query.sides))
        }
        outer = {name: query for name, query in living.items() if query.outer is not None}
        unmatched = self._unmatched(outer, living, planner, newest, ended) if outer else {}
        planned = self.clock()
        made = self._made(plans, planner, budgets)
        answered = _Answers(dict(planner.state.queries), ReadResults(read))
        self._answer(made, planner, queries, moment, answered, unmatched)
        combined = {
            name: query
            for name, query in living.items()
            if query.is_combined and any(side.summary in arrivals for side in query.sides)
        }
        self._combine(combined, planner, tuples, moment, answered)
        charge = sum(query_probes.charge for query_probes in made.values()) + together.charge
        probed = self.clock()
        summaries = _with_rankings(summaries, planner)
        promising_state = PromisingState(evicted(summaries, living), answered.queries | together.queries)
        whole = {name: self._whole_budget(query, budgets[name]) for name, query in living.items()}
        produced = _produced(before, promising_state, living) if arrivals else {}
        spent = self._inserting + self.clock() - started
        given = ReviewInput(intent.batch_id, arrivals, living, whole, produced, spent)
        promising_state = self.review.apply(promising_state, summaries_by_name, given, self.planner)
        rolled_up = self.tuples.rolled_up(promising_state, intent.batch_id, summaries_of_outer_joins(living))
        moved = [
            name
            for name, own in rolled_up.summaries.items()
            if own.files and not promising_state.summaries[name].files
        ]
        divided = _divided(promising_state, living, moved)
        after = replace(rolled_up, queries=divided.queries)
        for batch, times in zip(together.batches, together.times, strict=True):
            answered.read.add_shared(batch, times)
        new = answered.read.new_results(living, before, after, arrivals)
        if count := len(made) + len(together.queries):  # a budget is that of one query
            probing = began - indexed + probed - planned
            others = self.clock() - started - probing
            fixed = self._inserting + others / count if arrivals else 0.0
            rows = sum(batch.table.num_rows for batch in (*answered.batches, *together.batches))
            self._cost = _BatchCost(intent.batch_id, count, rows, charge // count, probing / count, fixed)
        return PromisingOutput(after, [*answered.batches, *together.batches], new)

    # --- results are written ---

    def note_written(self, batch_id: int, results: Results, seconds: float) -> None:
        """Record what a batch cost, once its results are written: a budget of time pays for its query's results.

        Writing a result takes several times as long as finding it.
        """
        cost, self._cost = self._cost, None
        if cost is None or cost.batch_id != batch_id:
            return
        rows = sum(batch.table.num_rows for batch in results.batches)
        writing = seconds * cost.rows / max(rows, 1) / cost.queries
        self.pace.note(cost.probes, cost.probing + writing, cost.fixed)

    def _whole_budget(self, query: PreferenceQuery, budget: int | None) -> int | None:
        """The probes of a budget before insertion and planning are subtracted."""
        micros = query.preference.time
        return budget if micros is None or budget is None else max(budget, self.pace.whole(micros))

    def _made(
        self, plans: Mapping[str, list[Probe]], planner: ProbePlanner, budgets: Mapping[str, int | None]
    ) -> dict[str, _Made]:
        """Make the queries' probes, in several rounds.

        Tuples outside of a window cost nothing, so part of a budget may be left. Further rounds spend it; there
        are fewer rounds if each is a job.
        """
        made = {name: _Made(probes, budgets[name], planner.batch_id) for name, probes in plans.items()}
        turn = dict(made)
        for number in range(ROUNDS):
            if number:
                turn = {name: own for name, own in turn.items() if own.goes_on(number)}
                for own in turn.values():  # most of it may be outside of the window
                    times = (EXECUTOR_FACTOR if own.on_executors else 2) ** number
                    own.probes = planner.plan_rest(own.probes, (own.left or 0) * times)
            if not turn:
                break
            self._probe(turn, planner.state)
        return made

    def _probe(self, turn: Mapping[str, _Made], promising_state: PromisingState) -> None:
        """Make probes on the driver, or in tasks if tuples are in files."""
        read, partitioned = DriverTuples(promising_state), []
        for query_probes in turn.values():
            for side, probe in enumerate(query_probes.probes):
                if is_on_executors(promising_state, probe.query):
                    query_probes.on_executors = True
                    partitioned.append((query_probes, side))
                elif probe.whole is not None or probe.taken.any():
                    query_probes.add(side, make_probes(probe, read, query_probes.left))
        self._probe_on_executors(partitioned, promising_state)

    def _probe_on_executors(
        self, partitioned: Sequence[tuple[_Made, int]], promising_state: PromisingState
    ) -> None:
        """Make probes in tasks; the rest of a budget is divided among the partitions by their probes."""
        probes = [query_probes.probes[side] for query_probes, side in partitioned]
        totals = {
            id(query_probes): sum(int(one.taken.sum()) for one in query_probes.probes)
            for query_probes, _ in partitioned
        }
        rates = [
            None if query_probes.left is None else query_probes.left / max(totals[id(query_probes)], 1)
            for query_probes, _ in partitioned
        ]
        for (query_probes, side), done in zip(
            partitioned, self.tuples.probe_results(probes, rates, promising_state), strict=True
        ):
            query_probes.add(side, done)

    def _answer(
        self,
        made: Mapping[str, _Made],
        planner: ProbePlanner,
        queries: Preferences,
        moment: Moment,
        answers: _Answers,
        unmatched: Mapping[str, AfterBatch],
    ) -> None:
        """Add the results of the queries' probes, and the queries' states after them.

        `unmatched` are the tuples of outer joins without a partner, also of those that made no probes.
        """
        for name, query_probes in made.items():
            query = queries[name]
            done = answer_query(
                query,
                query_probes.probes,
                query_probes.table,
                planner.state,
                moment,
                self.backend.scalars,
                query_probes.draws,
                unmatched[name].table if name in unmatched else None,
            )
            after = planner.state_after(name, query, query_probes.probes, query_probes.charge, done.found)
            answers.queries[name] = replace(after, selected=done.selected)
            if query.figures:
                answers.add(name, done.table, partial(_figure_times, query, planner.state, done.table))
            else:
                answers.add(name, done.table, done.times)
        for name, after_batch in unmatched.items():
            if name not in made and after_batch.table is not None:
                done = answer_alone(queries[name], after_batch.table, moment, self.backend.scalars)
                answers.add(name, done.table, done.times)
            answers.queries[name] = replace(answers.queries[name], unmatched=after_batch.unmatched)

    def _unmatched(
        self,
        outer: Preferences,
        living: Preferences,
        planner: ProbePlanner,
        newest: Mapping[str, int | None],
        ended: Collection[str],
    ) -> dict[str, AfterBatch]:
        """The tuples of outer joins that have no partner; those of queries that have `ended` are all returned."""
        by_key = planner.by_key
        assert by_key is not None
        names = {side.summary for query in outer.values() for side in query.sides}
        late = {name: late_before(name, planner.state.summaries, living) for name in names}
        made = {}
        for name, query in outer.items():
            readings = planner.reading(name, query, 0), planner.reading(name, query, 1)
            batch = OuterBatch(query, readings, planner.arrivals, by_key, self.backend.scalars)
            before, (one, other) = planner.state.queries[name].unmatched, query.sides
            times = newest.get(one.stream), newest.get(other.stream)
            made[name] = batch.after(before, times, late, name in ended)
        return made

    def _combine(
        self,
        queries: Preferences,
        planner: ProbePlanner,
        read: DriverTuples,
        moment: Moment,
        answers: _Answers,
    ) -> None:
        """Add the results of aggregates over joins that need no pairs."""
        state = planner.state
        works = {name: _combined_work(name, query, state, moment.batch_id) for name, query in queries.items()}
        remote = [
            name
            for name, query in queries.items()
            if any(state.summaries[side.summary].files for side in query.sides)
        ]
        figures = CombinedFigures()
        parts = {
            name: figures.parts(work, read.sides_of(work))
            for name, work in works.items()
            if name not in remote
        }
        if remote:
            computed = self.tuples.combined_figures([works[name] for name in remote], state)
            parts |= dict(zip(remote, computed, strict=True))
        for name, query in queries.items():
            added = sum(part.added for part in parts[name])
            columns = combined_columns(query, parts[name])
            table = presented_figures(query, columns, moment, Coverage(produced=added), self.backend.scalars)
            before = state.queries[name]
            done = Coverage(before.done.probes, before.done.produced + added)
            answers.queries[name] = replace(before, done=done)
            answers.add(name, table, partial(_figure_times, query, state, table))


class DriverTuples:
    """Reads the tuples of summaries that are on the driver; tuples that several queries need are read once."""

    def __init__(self, promising_state: PromisingState):
        self.state = promising_state
        self._read: dict[tuple[str, str, bytes], KeptTuples] = {}
        self._near: dict[tuple[str, int | None, int | None], KeptTuples] = {}
        self._places: dict[tuple[str, int, str | None], Ints] = {}

    def batches(self, summary: str, batches: Ints) -> KeptTuples:
        return self._chosen(summary, "batch_id", batches)

    def buckets(self, summary: str, buckets: Ints) -> KeptTuples:
        return self._chosen(summary, "bucket", buckets)

    def between(self, summary: str, since: int | None, until: int | None) -> KeptTuples:
        key = summary, since, until
        if key not in self._near:
            own = self.state.summaries[summary]
            parts = [run.tuples.between(since, until).table for run in own.runs]
            tables = [part for part in parts if part.num_rows] or parts[:1]
            if not tables:
                tables = [no_tuples(own.representation.shape.column).table]
            self._near[key] = KeptTuples(pa.concat_tables(tables, promote_options="default").combine_chunks())
        return self._near[key]

    def sides_of(self, work: CombinedWork) -> ReadTuples:
        """Reads the tuples of the sides of a query."""
        return lambda side, _: self.between(work.query.sides[side].summary, work.starts[side], None)

    def keys_since(self, summary: str, since: int | None) -> Keys:
        tuples = [run.tuples for run in self.state.summaries[summary].runs]
        near = [part for part in tuples if since is None or part.times[1] >= since]
        keys = [
            part.key if since is None or part.times[0] >= since else part.key[part.time >= since]
            for part in near
        ]
        return np.concatenate(keys) if keys else np.zeros(0, np.uint64)

    def places(self, summary: str, batch_id: int, ranking: str | None) -> Ints:
        key = summary, batch_id, ranking
        if key not in self._places:
            tuples = self.batches(summary, np.array([batch_id]))
            if ranking is None:
                self._places[key] = even_places(tuples, batch_id)
            else:
                known = self.state.summaries[summary].rankings
                keys = next(one.key for one in known if (one.batch_id, one.name) == (batch_id, ranking))
                self._places[key] = ranked_places(tuples, keys)
        return self._places[key]

    def _chosen(self, summary: str, what: str, numbers: Ints) -> KeptTuples:
        key = summary, what, numbers.tobytes()
        if key not in self._read:
            runs = (run.tuples for run in self.state.summaries[summary].runs)
            self._read[key] = concat_tuples([run.where(np.isin(getattr(run, what), numbers)) for run in runs])
        return self._read[key]


def _combined_work(name: str, query: PreferenceQuery, state: PromisingState, batch_id: int) -> CombinedWork:
    summaries = [state.summaries[side.summary] for side in query.sides]
    columns = [summary.representation.shape.column for summary in summaries]
    starts = window_starts(query, summaries)
    return CombinedWork(
        query, (columns[0], columns[1]), state.queries[name].since, (starts[0], starts[1]), batch_id
    )


def _figure_times(query: PreferenceQuery, state: PromisingState, table: pa.Table) -> Ints:
    """The time of all aggregates of a batch: the newest time, in a join that of the stream that is furthest behind."""
    highs = [state.summaries[side.summary].representation.high for side in query.sides]
    return np.full(table.num_rows, min(high for high in highs if high is not None))


def _budget(intent: BatchIntent, name: str, query: PreferenceQuery) -> int | None:
    """The probes that a query may make in a batch; a query that joins with this batch has no pace yet."""
    timed = FIRST_PROBES if query.preference.time is not None else None
    return intent.probes.get(name, query.preference.probes or timed)


def _produced(before: PromisingState, after: PromisingState, queries: Preferences) -> dict[str, int]:
    """The output of a batch by summary: that of all queries that read it."""
    produced = dict.fromkeys(after.summaries, 0)
    for name, query in queries.items():
        count = after.queries[name].done.produced - before.queries[name].done.produced
        for side in query.sides:
            produced[side.summary] += count
    return produced


def _divided(state: PromisingState, queries: Preferences, moved: Sequence[str]) -> PromisingState:
    """The state in which selections can resume tuples that move to the executors."""
    return with_lines_by_value(state, queries, moved, DriverTuples(state)) if moved else state


def _with_rankings(summaries: Mapping[str, SummaryState], planner: ProbePlanner) -> dict[str, SummaryState]:
    """The summaries with the orders in which this batch's budgets took the tuples."""
    rankings = {} if planner.by_key is None else planner.by_key.rankings
    return {
        name: replace(own, rankings=(*own.rankings, *rankings[name].values())) if name in rankings else own
        for name, own in summaries.items()
    }


def _driver_arrival(
    table: pa.Table, summary_state: SummaryState, want: TupleColumns, batch_id: int
) -> BatchArrival | None:
    if not table.num_rows:
        return None
    shape = summary_state.representation.shape
    tuples = batch_tuples(table, shape, want, batch_id).since(summary_state.late_before)
    return BatchArrival.of_run(shape, tuples, want, table.num_rows - len(tuples))


def tuple_frame(run: IngestRun, limit: int | None, shape: Summary, want: TupleColumns) -> Frame:
    """A batch's accepted rows as tuples of a summary: key, time, and the columns that queries read."""
    kind = run.batch.columns[shape.column]
    scalars = {"key": key_sql(shape.column, kind), "time": run.time}
    if shape.between is not None:
        scalars[NUMBER_COLUMN] = f"CAST({quoted(shape.column)} AS DOUBLE)"
    texts = [*map(quoted, want.columns), *want.computed]
    scalars |= {f"x{i}": text for i, text in enumerate(texts)}
    return run.batch.frame.filter(run.is_accepted(limit)).project(
        run.at_clock(scalars), joins=run.table_joins(want.joins)
    )


def key_sql(column: str, kind: pa.DataType) -> str:
    """The key of a value: Spark's 64-bit hash, which is the same for equal values."""
    value = quoted(column)
    if pa.types.is_floating(kind):
        value = f"CASE WHEN {value} = 0 THEN {value} * 0 + 0 ELSE {value} END"  # -0.0 is 0.0
    return f"xxhash64({value})"
