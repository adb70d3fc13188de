"""EXPLAIN as text: the most important facts first, shortened unless `verbose` asks for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from transom.plan.explain.promising_text import preference_text, summaries_text
from transom.plan.explain.records import (
    Explanation,
    FamilyPlan,
    Holding,
    KeptSlot,
    PassPlan,
    Projected,
    QueryPlan,
    SelectionPlan,
    Slicing,
    StreamJoinPlan,
    StreamPlan,
    ViewPlan,
    WorkDone,
)
from transom.plan.explain.row_queries import row_queries_text, row_query_text
from transom.plan.explain.stores_text import lookup_plan_text, stores_text
from transom.plan.explain.text_parts import (
    ALL,
    BRIEF,
    Detail,
    counted,
    first,
    indented,
    name_list,
    queries_text,
    readable,
)
from transom.plan.subject import Subject

SELECTIONS_AT_LENGTH = 12  # with more selections, only those of the first family are shown at length


def plan_text(plan: Explanation, verbose: bool = False) -> str:
    """The plan, stream by stream: the rules, the expressions computed for every row, and the families of queries."""
    detail = ALL if verbose else BRIEF
    lines: list[str] = []
    for stream in plan.streams:
        lines += _stream(stream, detail)
        lines += indented(decisions_text(stream.decisions)) if verbose else ()
    lines += views_text(plan.views, detail)
    lines += summaries_text(plan.summaries, plan.preference_queries, detail)
    if plan.shards.files:
        lines.append(
            f"state on the executors: {plan.shards.rows:,} cells in {counted(plan.shards.files, 'file')} of shards, "
            f"{plan.shards.bytes:,} bytes"
        )
    lines.append(f"strategy {plan.strategy}, fragments {plan.fragments}, state {plan.state}")
    return readable("\n".join(lines))


def views_text(views: Sequence[ViewPlan], detail: Detail) -> Iterator[str]:
    """The views, and what they are inlined into."""
    for view in views:
        into = f"inlined into {name_list(view.readers, detail.names)}" if view.readers else "nothing reads it"
        yield f"view {view.name}: {detail.short(' '.join(view.text.split()))}; {into}"


def decisions_text(decisions: Sequence[PassPlan]) -> Iterator[str]:
    """What the planner decided, pass by pass in their order, with the reasons."""
    if decisions:
        yield "decisions of the planner, pass by pass"
    for number, pass_plan in enumerate(decisions, 1):
        yield f"  {number}. {pass_plan.name}{'' if pass_plan.choices else ': nothing to decide'}"
        for choice in pass_plan.choices:
            yield f"    {choice.about}: {choice.chosen} ({choice.reason})"


def work_text(work: WorkDone) -> str:
    """The aggregations done so far, and the number that unshared queries would have needed."""
    if work.ratio is None:
        return "no aggregations yet"
    parts = f"{work.partials:,} partial (unshared: {work.unshared_partials:,})"
    finals = f"{work.finals:,} final (unshared: {work.unshared_finals:,})"
    return f"{parts} and {finals} aggregations; unshared {work.ratio:,.1f} times as many"


def _title(stream: StreamPlan, selections: int) -> str:
    families = counted(len(stream.families), "family", "families")
    shared = f" in {counted(selections, 'selection')} of {families}" if selections else ""
    what = "stream" if stream.results_of is None else "results of"
    what = "pairs of" if stream.pairs is not None else what
    kinds = f"{queries_text(stream.queries)}{shared}"
    if stream.on_demand:
        on_demand = f"{queries_text(stream.on_demand)} on demand"
        kinds = f"{kinds} and {on_demand}" if stream.queries else on_demand
    if stream.row_queries:
        of_rows = f"{queries_text(len(stream.row_queries))} without a window"
        kinds = f"{kinds} and {of_rows}" if stream.queries or stream.on_demand else of_rows
    if stream.with_preference:
        with_preference = f"{queries_text(stream.with_preference)} with a preference"
        is_only = not (stream.queries or stream.on_demand or stream.row_queries)
        kinds = with_preference if is_only else f"{kinds} and {with_preference}"
    return f"{what} {stream.name}: {kinds}, time {stream.time}"


def _projected(scalar: Projected, detail: Detail) -> str:
    why = "" if scalar.by_spark is None else f": by Spark, because {scalar.by_spark}"
    if scalar.by_worker:
        why = ": by a worker process, because it calls a Python function of the program"
    return f"{detail.short(scalar.sql)} ({scalar.uses:,}){why}"


def _pairs(pairs: StreamJoinPlan) -> Iterator[str]:
    """A join of two streams: its condition, its clock, and what it keeps."""
    where = " and ".join([pairs.bound, *pairs.conditions])
    yield f"  join on {' and '.join(pairs.keys)}, where {where}"
    whose = " and ".join(
        stream for stream, is_kept in zip(pairs.streams, pairs.preserved, strict=True) if is_kept
    )
    if pairs.is_combined:
        yield "  combined pairs: those of a row with all its earlier partners are one row, and are not produced"
    match pairs.form:
        case "outer":
            yield f"  also returns rows of {whose} without a partner, with their own time"
        case "semi":
            yield f"  returns the rows of {whose} that have a partner, each once, with their own time"
        case "anti":
            yield f"  returns the rows of {whose} without a partner, with their own time"
    closes = (
        "when both streams have passed them"
        if pairs.wait is None
        else f"{pairs.wait} after the streams have passed them"
    )
    yield f"  a pair has the later time of its rows; windows close {closes}"
    for place, stream in enumerate(pairs.streams):
        columns, late, condition = pairs.columns[place], pairs.late[place], pairs.filters[place]
        read = f" with {', '.join(columns)}" if columns else ""
        where = f", where {condition}" if condition is not None else ""
        missed = f"; {late:,} arrived too late for some of their pairs" if late else ""
        yield f"  the driver keeps {pairs.rows[place]:,} rows of {stream}{read}{where}{missed}"


def _stream(stream: StreamPlan, detail: Detail) -> Iterator[str]:
    selections = sum(len(family.selections) for family in stream.families)
    yield _title(stream, selections)
    if stream.plans and all(query.pending for query in stream.plans):
        yield "  all of them join with the next batch"
        detail = replace(detail, waiting=False)
    idle = "" if stream.idle is None else f", idle after {stream.idle}"
    if stream.pairs is not None:
        yield from _pairs(stream.pairs)
    elif stream.derived_from is not None:
        yield f"  its rows are derived from {detail.short(stream.derived_from)}"
        yield "  a window closes when it is closed for all of these streams"
    elif stream.results_of is None:
        yield f"  slack {stream.slack or 'none'}, horizon {stream.horizon or 'none'}{idle}"
    elif stream.preferred_from:
        closing = " and ".join(stream.preferred_from)
        yield f"  a result has the time of its latest tuple; windows close when {closing} passed them"
    elif not stream.queries:
        yield f"  its rows are the finals of {stream.name}"
    else:
        yield (
            f"  slices accumulate the finals of {stream.name}, and windows close when the windows of "
            f"{stream.name} inside of them have; its early results count only while a prod is answered"
        )
    if stream.overload is not None:
        yield f"  {stream.overload}"
    if stream.sidelined is not None:
        yield f"  sidelined: {stream.sidelined}"
    for name, why in stream.suspended.items():
        yield f"  paused: {name}" if why == "paused" else f"  suspended: {name}: {why}"
    uses = sum(scalar.uses for scalar in stream.project)
    by_spark = sum(scalar.by_spark is not None for scalar in stream.project)
    shared_out = f"; Spark evaluates {by_spark:,}, compiled code the others" if by_spark else ""
    yield f"  project: {counted(len(stream.project), 'scalar expression')} for {counted(uses, 'use')}{shared_out}"
    scalars = sorted(stream.project, key=lambda scalar: -scalar.uses)
    most = None if detail.names is None else 2 * detail.names
    yield from indented(
        indented(first(scalars, most, lambda scalar: [_projected(scalar, detail)], "expressions"))
    )
    for join in stream.joins:
        yield f"  join {join.table} on {detail.short(join.on)}"
    if stream.queries or not (stream.on_demand or stream.with_preference or stream.row_queries):
        yield f"  done: {work_text(stream.work)}"
    others = detail
    if (
        detail.families is not None and selections > SELECTIONS_AT_LENGTH
    ):  # then the first family stands for all
        others = replace(detail, selections=1, queries=2)
    yield from indented(
        first(
            stream.families,
            detail.families,
            lambda family: _family(family, detail if family.id == 1 else others),
            "families",
        )
    )
    yield from indented(stores_text(stream, detail))
    if stream.rows is not None:
        yield from indented(row_queries_text(stream.rows, detail))


def _family(family: FamilyPlan, detail: Detail) -> Iterator[str]:
    yield f"family {family.id}: {family_title(family)}"
    yield from indented(_family_head(family, detail))
    hidden = f"selections; {queries_text(family.queries)} in all"
    yield from indented(
        first(family.selections, detail.selections, lambda selection: _selection(selection, detail), hidden)
    )


def family_title(family: FamilyPlan) -> str:
    """What a family is, in a line."""
    size = f"{counted(len(family.selections), 'selection')}, {queries_text(family.queries)}"
    if family.kind == "range":
        return f"range of {family.scalar}, {size}"
    if family.kind == "grid":
        return f"grid of {family.scalar}, {size}"
    if family.kind == "signature":
        return f"signature of {counted(family.conjuncts, 'conjunct')}, {size}"
    if family.kind == "gaps":
        return f"sessions of several gaps, {size}"
    return f"alone, {queries_text(family.queries)}"


def _family_head(family: FamilyPlan, detail: Detail) -> Iterator[str]:
    if family.kind == "range":
        yield (
            f"{counted(family.constants, 'constant')} cut it into "
            f"{counted(family.fragments or 0, 'fragment')}: one binary search per tuple serves all selections"
        )
    elif family.kind == "grid":
        yield (
            f"{counted(family.constants, 'constant')} and {counted(family.boxes or 0, 'box', 'boxes')}: one binary "
            "search per tuple and scalar serves all selections"
        )
    elif family.kind == "gaps":
        yield "one run within the smallest gap serves all selections"
    elif family.kind == "signature":
        yield "the fragments are the signatures that occur: one signature per tuple serves all selections"
    if family.agrees and family.kind in ("range", "grid"):
        yield f"all require {detail.short(' AND '.join(family.agrees))}"
    if family.group_by:
        yield f"group by {detail.short(', '.join(family.group_by))}"
    if family.rolled_up is not None:
        others = name_list([str(number) for number in family.kin], detail.names)
        whose = f"{'family' if len(family.kin) == 1 else 'families'} {others}"
        yield (
            f"rolled up from groups by {detail.short(', '.join(family.rolled_up))} together with {whose}, "
            "wherever these are clearly fewer than tuples"
        )


def _selection(selection: SelectionPlan, detail: Detail) -> Iterator[str]:
    condition = "every tuple" if selection.residual is None else f"where {detail.short(selection.residual)}"
    unshared = ", not shared with others over the same rows" if selection.unshared else ""
    yield f"selection {selection.id}: {condition}{unshared}"
    others = name_list([query.name for query in selection.queries[detail.queries :]], detail.names)
    yield from indented(
        first(
            selection.queries,
            detail.queries,
            lambda query: _query(query, detail.waiting),
            f"queries: {others}",
        )
    )
    yield from indented([_slices(selection), *_keeps(selection, detail), _holding(selection.holds)])


def _query(query: QueryPlan, mark: bool) -> Iterator[str]:
    joins_later = " (joins with the next batch)" if query.pending and mark else ""
    having = "" if query.having is None else f"; having {query.having}"
    yield f"query {query.name}: {query.window.text}{having}{joins_later}"
    if query.reads:
        yield f"  still reads selection {', '.join(map(str, query.reads))}, which it left"
    if query.early is not None:
        yield f"  early: {query.early}"
    if query.overload is not None:
        yield f"  on overload: {query.overload}"
    if query.past is not None:
        yield f"  {query.past}"
    if query.corrections is not None:
        yield f"  {query.corrections}"
    if query.read_by:
        yield f"  its results are read by {', '.join(query.read_by)}"


def _slices(selection: SelectionPlan) -> str:
    whose = "" if len(selection.queries) == 1 else f" shared by {queries_text(len(selection.queries))}"
    kinds = "" if selection.windows == 1 else f" with {selection.windows:,} kinds of window"
    what = _slice_word(selection.slicing)
    return f"{what}{whose}{kinds}: {slicing_text(selection.slicing)}"


def _slice_word(slicing: Slicing) -> str:
    return "rows" if slicing.by_key else "slices" if slicing.gap is None else "sessions"


def slicing_text(slicing: Slicing) -> str:
    """How finely time is cut, and where next."""
    if slicing.gap is not None:
        return f"rows at most {slicing.gap} apart; open sessions are kept on the driver"
    if slicing.by_key:
        return "the last rows of each key, kept on the driver"
    lengths = list(dict.fromkeys(slicing.lengths))
    of = lengths[0] if len(lengths) == 1 else f"{', '.join(slicing.lengths[:3])} ..."
    following = f"; next edges {', '.join(slicing.next_edges_text[:3])}" if slicing.next_edges else ""
    return f"{slicing.edges:,} per {slicing.per}, of {of}{following}"


def _keeps(selection: SelectionPlan, detail: Detail) -> Iterator[str]:
    """The slots that are kept, and where queries share them, the queries that read each."""
    keeps = selection.keeps
    if keeps is None:
        yield "keep every tuple"
        return
    reader_texts = [_slot_readers(kept_slot, selection, detail) for kept_slot in keeps]
    plain = [
        detail.short(kept_slot.slot)
        for kept_slot, readers in zip(keeps, reader_texts, strict=True)
        if readers is None
    ]
    yield f"keep per slice and group: {', '.join(['rows', *plain])}"
    for kept_slot, readers in zip(keeps, reader_texts, strict=True):
        if readers is not None:
            yield f"  {detail.short(kept_slot.slot)} {readers}"


def _slot_readers(kept_slot: KeptSlot, selection: SelectionPlan, detail: Detail) -> str | None:
    """The queries that read a slot, and for which aggregates; None where that is obvious."""
    aggregates = list(dict.fromkeys(read.aggregate for read in kept_slot.readers))
    names = list(dict.fromkeys(read.query for read in kept_slot.readers))
    is_all = len(names) == len(selection.queries)
    if is_all and (len(names) == 1 or aggregates == [kept_slot.slot]):
        return None
    of = "all of them" if is_all else name_list(names, detail.names)
    return f"for {name_list(aggregates, detail.names)} of {of}"


def _holding(holds: Holding) -> str:
    if holds.place == "executors":
        return f"holds {counted(holds.slices, 'slice')}, in shards on the executors"
    if not holds.slices:
        return "holds nothing yet"
    return f"holds {counted(holds.slices, 'slice')}, {counted(holds.rows or 0, 'row')}, on the driver"


# --- one query ---


def query_text(plan: Explanation, name: str, verbose: bool = False) -> str:
    """How one query is computed: its selection, its family, and the queries that it shares with."""
    detail = ALL if verbose else BRIEF
    lookup = plan.find_lookup(name)
    if lookup is not None:
        return readable("\n".join(lookup_plan_text(*lookup, detail)))
    preference = plan.find_preference_query(name)
    if preference is not None:
        shown = plan.only(name)
        joins_later = " (joins with the next batch)" if preference.pending else ""
        query_lines = [*preference_text(preference, replace(detail, waiting=False))]
        below = list(summaries_text(shown.summaries, (), detail))[1:]
        return readable("\n".join([query_lines[0] + joins_later, *query_lines[1:], *below]))
    row_query = plan.find_row_query(name)
    if row_query is not None:
        row_stream, own = row_query
        return readable("\n".join(row_query_text(row_stream.name, own, replace(detail, waiting=False))))
    location = plan.find(name)
    if location is None:
        why = [stream.suspended[name] for stream in plan.streams if name in stream.suspended]
        return f"query {name} takes no part in batches{f': {why[0]}' if why else ''}"
    stream, family, selection, query = location
    joins_later = " (joins with the next batch)" if query.pending else ""
    lines = [
        f"query {name} over {stream.name}{joins_later}",
        *(
            f"  reads the view {view.name}: {detail.short(' '.join(view.text.split()))}"
            for view in plan.views
            if name in view.readers
        ),
        *indented(_query_lines(family, selection, query, detail)),
    ]
    if verbose:
        lines += indented(decisions_text(_about(stream, family, selection, query)))
    return readable("\n".join(lines))


def _about(
    stream: StreamPlan, family: FamilyPlan, selection: SelectionPlan, query: QueryPlan
) -> list[PassPlan]:
    """The decisions that concern one query."""
    concerned = {
        Subject.query(query.name),
        *Subject.selections([selection.id]),
        *Subject.families([family.id]),
    }
    pass_plans = (
        replace(each, choices=tuple(made for made in each.choices if not concerned.isdisjoint(made.about)))
        for each in stream.decisions
    )
    return [pass_plan for pass_plan in pass_plans if pass_plan.choices]


def _query_lines(
    family: FamilyPlan, selection: SelectionPlan, query: QueryPlan, detail: Detail
) -> Iterator[str]:
    yield f"window {query.window.text} on {family.clock}"
    if selection.where is not None:
        yield f"where {detail.short(selection.where)}"
    if family.group_by:
        yield f"group by {', '.join(family.group_by)}"
    if query.having is not None:
        yield f"having {query.having}"
    if query.early is not None:
        yield f"early: {query.early}"
    if query.overload is not None:
        yield f"on overload: {query.overload}"
    if query.past is not None:
        yield query.past
    if query.corrections is not None:
        yield query.corrections
    if query.read_by:
        yield f"its results are read by {', '.join(query.read_by)}"
    if query.unseen is None or query.unseen:
        yield "does not answer for windows with rows from before it joined"
    others = [other.name for other in selection.queries if other.name != query.name]
    shared = f"shared with {name_list(others, detail.names)}" if others else "not shared"
    yield f"selection {selection.id}, {shared}"
    what = _slice_word(selection.slicing)
    yield from indented([f"{what}: {slicing_text(selection.slicing)}", *_read(selection, query, detail)])
    yield f"  {_holding(selection.holds)}"
    if query.reads:
        yield f"  still reads selection {', '.join(map(str, query.reads))}, which it left"
    yield f"family {family.id}: {family_title(family)}"
    yield from indented(_family_head(family, detail))


def _read(selection: SelectionPlan, query: QueryPlan, detail: Detail) -> Iterator[str]:
    """The slots that the query reads, and the other queries that read them."""
    for kept_slot in selection.keeps or ():
        mine = list(dict.fromkeys(read.aggregate for read in kept_slot.readers if read.query == query.name))
        others = list(dict.fromkeys(read.query for read in kept_slot.readers if read.query != query.name))
        also = f", and for {name_list(others, detail.names)}" if others else ""
        if mine:
            yield f"keeps {detail.short(kept_slot.slot)} for {', '.join(mine)}{also}"
    if selection.keeps is None:
        yield "keeps every tuple"
