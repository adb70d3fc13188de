"""EXPLAIN as a drawing: a Mermaid flowchart from streams to families to selections to queries."""

from __future__ import annotations

from collections.abc import Iterator

from transom.plan.explain.promising_text import summary_title
from transom.plan.explain.records import (
    Explanation,
    FamilyPlan,
    SelectionPlan,
    StorePlan,
    StoreSetPlan,
    StreamPlan,
)
from transom.plan.explain.stores_text import store_set_title
from transom.plan.explain.text import family_title, work_text
from transom.plan.explain.text_parts import counted, name_list, queries_text, readable

FAMILIES, SELECTIONS, NAMES = 6, 4, 5  # that a readable drawing has at most: of a stream, a family, a box
QUERIES = 12  # with a preference
WIDTH = 60

# What Mermaid would take for its own inside a quoted label; a backtick would begin Markdown.
_ESCAPES = {
    ord("#"): "#35;",
    ord('"'): "#quot;",
    ord("`"): "#96;",
    ord("<"): "#lt;",
    ord(">"): "#gt;",
    ord("&"): "#amp;",
    ord("\n"): " ",
}


def mermaid(plan: Explanation, verbose: bool = False) -> str:
    """A flowchart; without `verbose` it has at most some dozens of boxes."""
    lines = ["flowchart LR"]
    for i, stream in enumerate(plan.streams):
        lines += _stream(f"s{i}", stream, verbose)
    lines += _cascades(plan, "\n".join(lines))
    lines += _summaries(plan, verbose)
    return "\n".join(lines)


def _cascades(plan: Explanation, drawn: str) -> Iterator[str]:
    """From the selections of queries to the streams that their results are."""
    places = {stream.results_of: f"s{i}" for i, stream in enumerate(plan.streams) if stream.results_of}
    for i, stream in enumerate(plan.streams):
        for family, selection in stream.selections():
            node = f"s{i}f{family.id}c{selection.id}q"
            for query in selection.queries:
                if query.name in places and f"{node}(" in drawn:
                    yield f"  {node} --> {places[query.name]}"


def _summaries(plan: Explanation, verbose: bool) -> Iterator[str]:
    """From streams over their summaries to the queries with a preference."""
    streams = {stream.name: f"s{i}" for i, stream in enumerate(plan.streams)}
    nodes = {summary.name: f"m{i}" for i, summary in enumerate(plan.summaries)}
    for summary in plan.summaries:
        held = f"{counted(summary.tuples, 'tuple')} held on the {summary.place}"
        box = f"{nodes[summary.name]}[({label(summary_title(summary), held)})]"
        yield f"  {streams[summary.stream]} --> {box}"
    most = len(plan.preference_queries) if verbose else QUERIES
    for i, query in enumerate(plan.preference_queries[:most]):
        preference = f"{query.order} {query.promise}"
        yield f"  p{i}([{label(query.name, preference, f'{query.share:.0%} produced')}])"
        yield from (f"  {nodes[side.summary]} --> p{i}" for side in query.sides)
        results = (stream.name for stream in plan.streams if stream.results_of == query.name)
        yield from (f"  p{i} --> {streams[name]}" for name in results)
    if len(plan.preference_queries) > most:
        yield f"  pmore[{label(f'{len(plan.preference_queries) - most:,} more queries with a preference')}]"


def label(*lines: str) -> str:
    """A quoted label of several lines.

    >>> label("price > 10", 'kind = "a"')
    '"price #gt; 10<br/>kind = #quot;a#quot;"'
    """
    plain = map(readable, lines)
    short = (line if len(line) <= WIDTH else f"{line[:WIDTH]} ..." for line in plain)
    return '"' + "<br/>".join(line.translate(_ESCAPES) for line in short) + '"'


def _stream(node: str, stream: StreamPlan, verbose: bool) -> Iterator[str]:
    parts = [queries_text(stream.queries), work_text(stream.work).split("; ")[-1]]
    if stream.on_demand:
        parts = [*(parts if stream.queries else ()), f"{queries_text(stream.on_demand)} on demand"]
    if stream.row_queries:
        of_rows = f"{queries_text(len(stream.row_queries))} without a window"
        parts = [*(parts if stream.queries or stream.on_demand else ()), of_rows]
    if stream.with_preference:
        led = f"{queries_text(stream.with_preference)} with a preference"
        is_only = not (stream.queries or stream.on_demand or stream.row_queries)
        parts = [*(() if is_only else parts), led]
    yield f"  {node}([{label(stream.name, *parts)}])"
    most = len(stream.families) if verbose else FAMILIES
    for family in stream.families[:most]:
        yield from _family(node, f"{node}f{family.id}", family, verbose)
    if len(stream.families) > most:
        yield f"  {node} --> {node}more[{label(f'{len(stream.families) - most:,} more families')}]"
    if stream.rows is not None:
        indexes = [f"index over {index.scalar}" for index in stream.rows.indexes[:NAMES]]
        names = name_list([query.name for query in stream.rows.queries], None if verbose else NAMES)
        yield f"  {node} --> {node}rows{{{{{label('rows that satisfy', *indexes)}}}}}"
        yield f"  {node}rows --> {node}rowsq([{label(names)}])"
    most = len(stream.store_sets) if verbose else FAMILIES
    for store_set in stream.store_sets[:most]:
        yield from _store_set(node, f"{node}g{store_set.id}", store_set, verbose)
    if len(stream.store_sets) > most:
        yield f"  {node} --> {node}rest[{label(f'{len(stream.store_sets) - most:,} more store sets')}]"


def _family(above: str, node: str, family: FamilyPlan, verbose: bool) -> Iterator[str]:
    agreed = (
        [f"all require {' AND '.join(family.agrees)}"] if family.kind == "range" and family.agrees else []
    )
    grouped = [f"group by {', '.join(family.group_by)}"] if family.group_by else []
    yield f"  {above} --> {node}{{{{{label(family_title(family), *agreed, *grouped)}}}}}"
    most = len(family.selections) if verbose else SELECTIONS
    for selection in family.selections[:most]:
        yield from _selection(node, f"{node}c{selection.id}", selection, verbose)
    if len(family.selections) > most:
        yield f"  {node} --> {node}more[{label(f'{len(family.selections) - most:,} more selections')}]"


def _selection(above: str, node: str, selection: SelectionPlan, verbose: bool) -> Iterator[str]:
    asked = "every tuple" if selection.residual is None else selection.residual
    held = f"{counted(selection.holds.slices, 'slice')} held on the {selection.holds.place}"
    cut = f"{counted(selection.slicing.edges, 'slice')} per {selection.slicing.per}"
    if selection.slicing.gap is not None:
        cut = f"sessions, gap {selection.slicing.gap}"
    if selection.slicing.by_key:
        cut = "the last rows of each key"
    yield f"  {above} --> {node}[{label(asked, cut, held)}]"
    names = [query.name for query in selection.queries]
    yield f"  {node} --> {node}q([{label(name_list(names, None if verbose else NAMES))}])"


def _store_set(above: str, node: str, store_set: StoreSetPlan, verbose: bool) -> Iterator[str]:
    yield f"  {above} --> {node}{{{{{label('on demand', store_set_title(store_set))}}}}}"
    stores = [store for store in store_set.stores if verbose or store.kind != "groups"]
    most = len(stores) if verbose else SELECTIONS
    for store in stores[:most]:
        yield from _store(node, f"{node}t{store.id}", store, verbose)
    if len(stores) > most:
        yield f"  {node} --> {node}more[{label(f'{len(stores) - most:,} more stores')}]"


def _store(above: str, node: str, store: StorePlan, verbose: bool) -> Iterator[str]:
    held = f"{counted(store.entries, 'entry', 'entries')} held on the {store.place}"
    yield f"  {above} --> {node}[{label(store.keeps, held)}]"
    names = list(dict.fromkeys(name for read in store.readers for name in read.queries))
    yield f"  {node} --> {node}q([{label(name_list(names, None if verbose else NAMES))}])"
