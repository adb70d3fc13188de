"""EXPLAIN of summaries and of queries with a preference, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transom.plan.explain.promising import PreferencePlan, SummaryPlan
from transom.plan.explain.text_parts import Detail, counted, first, indented, name_list, queries_text


def summaries_text(
    summaries: Sequence[SummaryPlan], preference_queries: Sequence[PreferencePlan], detail: Detail
) -> Iterator[str]:
    """The summaries, and the queries that they guide."""
    if not summaries:
        return
    readers = {name for summary in summaries for name in summary.readers}
    if preference_queries:
        led = f"{queries_text(len(preference_queries))} with a preference"
    else:
        led = f"{queries_text(len(readers))} on overload" if readers else "no query yet"
    yield f"promising tuples: {counted(len(summaries), 'summary', 'summaries')}, for {led}"
    yield from indented(first(summaries, detail.stores, lambda own: _summary(own, detail), "summaries"))
    others = name_list([query.name for query in preference_queries[detail.families :]], detail.names)
    yield from indented(
        first(
            preference_queries,
            detail.families,
            lambda own: preference_text(own, detail),
            f"queries: {others}",
        )
    )


def summary_title(summary: SummaryPlan) -> str:
    """A summary in one line: its column, its stream and its structure."""
    structure = f"{summary.structure}, the engine's choice" if summary.chosen else summary.structure
    return f"{summary.name} of {summary.column} of {summary.stream}: {structure}"


def _summary(summary: SummaryPlan, detail: Detail) -> Iterator[str]:
    joins_later = " (made with the next batch)" if summary.pending and detail.waiting else ""
    yield f"summary {summary_title(summary)}{joins_later}"
    cells = f"{counted(summary.buckets, 'bucket')} of values, " if summary.buckets > 1 else ""
    if summary.structure != "none":
        yield f"  {cells}counted by {summary.counts}"
    granularities = ", ".join(
        f"{granularity.covers} ({counted(granularity.zones, 'zone')}, {counted(granularity.tuples, 'tuple')})"
        if summary.arrived
        else granularity.covers
        for granularity in summary.granularities
    )
    yield f"  granularities: {granularities}; tuples are kept for {summary.reach}"
    yield f"  {_holding(summary)}"
    if summary.readers:
        yield f"  guides {name_list(summary.readers, detail.names)}"


def _holding(summary: SummaryPlan) -> str:
    if not summary.arrived:
        return "holds nothing yet"
    where = "in files on the executors" if summary.place == "executors" else "on the driver"
    late = f", {summary.late:,} of them too late" if summary.late else ""
    return (
        f"holds {counted(summary.tuples, 'tuple')} in {counted(summary.zones, 'zone')}, {where}, "
        f"and {summary.bytes:,} bytes of counts; {counted(summary.arrived, 'tuple')} ever{late}"
    )


def preference_text(query: PreferencePlan, detail: Detail) -> Iterator[str]:
    """A query with a preference: its conditions, its budget, and its results so far."""
    joins_later = " (joins with the next batch)" if query.pending and detail.waiting else ""
    streams = " and ".join(f"{side.stream} (summary {side.summary})" for side in query.sides)
    yield f"query {query.name}: {query.kind} of {streams}{joins_later}"
    for side in query.sides:
        if side.where is not None:
            whose = f"{side.stream}: " if len(query.sides) > 1 else ""
            asked = "" if side.guide is None else f"; the summary evaluates {detail.short(side.guide)}"
            yield f"  {whose}where {detail.short(side.where)}{asked}"
        for table in side.tables:
            yield f"  {side.stream} with the static table {detail.short(table)}"
    if query.rest is not None:
        yield f"  pairs for which {detail.short(query.rest)}"
    if query.keys:
        yield f"  groups by {detail.short(', '.join(query.keys))}"
    if query.having is not None:
        yield f"  having {detail.short(query.having)}"
    fade = f", fading by {query.fade:g} with each granularity" if query.fade != 1 else ""
    yield f"  preference {query.order} {detail.short(query.promise)}{fade}"
    window = "all that is kept" if query.window is None else f"window {query.window}"
    budget = "no budget: everything is probed" if query.budget is None else f"budget {query.budget} a batch"
    if query.combined:
        budget = "tuples are counted, and no pairs are produced: no budget is needed"
    yield f"  {window}; {budget}"
    if query.readers:
        yield f"  its results are read by {name_list(query.readers, detail.names)}"
    if not query.pending:
        yield f"  {coverage_text(query.probes, query.produced, query.skipped, query.share)}"
        if query.regions:
            yield (
                f"  {counted(query.regions, 'region')} with {counted(query.probes_left, 'probe')} "
                "wait until there is time"
            )


def coverage_text(probes: int, produced: int, skipped: float, share: float) -> str:
    """What became of a budget.

    >>> coverage_text(1000, 30, 10.0, 0.75)
    '1,000 probes made, 30 tuples produced, about 10 skipped: 75.0%'
    """
    made = f"{counted(probes, 'probe')} made, {counted(produced, 'tuple')} produced"
    return f"{made}, about {skipped:,.0f} skipped: {share:.1%}"
