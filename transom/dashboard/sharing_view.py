"""The sharing view: which queries share which slices and fragments, and what that saves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from transom.dashboard.formatting import compact, e, number, size
from transom.dashboard.frame import View, query_link
from transom.dashboard.overview import WRITE
from transom.dashboard.widgets import Panel, box, empty, entry, skeleton
from transom.plan.explain.words import counted, readable
from transom.server.service import Service

Plan = Mapping[str, Any]

OPEN = 2  # families that are open at first; of many queries, one
MANY = 100
FAMILIES = 40  # that are shown of a stream
SELECTIONS = 12  # of a family
CHIPS = 10  # queries of a selection
EVERY = 3  # seconds: a plan of thousands of queries takes a while to write


def sharers(plan: str, name: str) -> list[str] | None:
    """The other queries that share a query's slices, or its stores; None if the plan does not have it."""
    for stream in json.loads(plan)["streams"]:
        groups = [selection for family in stream["families"] for selection in family["selections"]]
        for group in (*groups, *stream["store_sets"]):
            names = [query["name"] for query in group["queries"]]
            if name in names:
                return [other for other in names if other != name]
    return None


class Sharing(View):
    """How the queries are computed together."""

    section = "sharing"
    title = "Sharing"

    def __init__(self, service: Service, search: str):
        super().__init__(service)
        self.search = search
        self._text, self._page, self._shown = "", -1, ""
        self._plan: Plan | None = None
        self._ticks = 0

    def build(self) -> None:
        Panel(
            '<div><h1>Sharing</h1><p class="sub">Queries that ask for the same rows share slices; '
            "families tell what rows they ask for together.</p></div>",
            classes="head",
        )
        self.saved = Panel(f'<div class="card">{skeleton(3)}</div>', classes="section", data_testid="saved")
        with box("row section"):
            entry(
                self._searched,
                self.search,
                0.25,
                type="search",
                placeholder="Find a query  ( / )",
                aria_label="Find a query",
                data_search="",
                data_testid="search",
                style="width:280px",
            )
            self.count = Panel("", classes="small muted", role="status")
        self.streams = Panel(f'<div class="card">{skeleton(8)}</div>', classes="stack", data_testid="sharing")

    async def _searched(self, text: str) -> None:
        self.search = text
        if self._plan is not None:
            self._draw(self._plan)

    def fetch(self) -> Plan | None:
        """The plan, if it has changed."""
        self._ticks += 1
        if self._ticks % EVERY != 1:
            return None
        text = self.service.explain(format="json")
        if text == self._text:
            return None
        self._text = text
        found: Plan = json.loads(text)
        return found

    def show(self, found: Plan | None) -> None:
        if found is not None:
            self._plan = found
            self._draw(found)

    def _draw(self, plan: Plan) -> None:
        streams = [stream for stream in plan["streams"] if stream["queries"] or stream["on_demand"]]
        if not streams:
            self.saved.set("")
            text = "When queries are registered, this shows what they share."
            self.streams.set(
                f'<div class="card">{empty("sharing", "Nothing to share yet", text, WRITE)}</div>'
            )
            return
        self.saved.set(_saved(streams))
        words = self.search.casefold().split()
        found = [_stream(stream, words) for stream in streams]
        hits = sum(count for _, count in found)
        self.count.set(counted(hits, "query matches", "queries match") if words else "")
        none = '<div class="card">' + empty("lost", "Nothing matches", "No query has such a name.") + "</div>"
        self.streams.set("".join(html for html, _ in found) or none)


def total_work(streams: Sequence[Plan]) -> dict[str, int]:
    """Aggregations of all streams: done, and as they would have been unshared."""
    names = ("partials", "finals", "unshared_partials", "unshared_finals")
    return {name: sum(stream["work"][name] for stream in streams) for name in names}


def _saved(streams: Sequence[Plan]) -> str:
    work = total_work(streams)
    done = work["partials"] + work["finals"]
    unshared = work["unshared_partials"] + work["unshared_finals"]
    if not done:
        none = empty("none", "Nothing computed yet", "The first page tells what sharing saves.", slim=True)
        return f'<div class="card">{none}</div>'
    ratio = unshared / done
    pairs = (
        ("Rows into slices", work["partials"], work["unshared_partials"]),
        ("Slices into windows", work["finals"], work["unshared_finals"]),
    )
    most = max(max(pair[1:]) for pair in pairs) or 1
    bars = "".join(
        _bar(name if not which else "", ("shared", "unshared")[which], count, most, bool(which))
        for name, *counts in pairs
        for which, count in enumerate(counts)
    )
    return (
        '<div class="card pad" style="display:grid;grid-template-columns:240px '
        'minmax(0,1fr);gap:32px;align-items:center">'
        f'<div><div class="big" data-testid="ratio">{ratio:,.1f} ×</div><p class="muted">as many '
        "aggregations "
        f"without sharing: {compact(unshared)} in place of {compact(done)}.</p></div>"
        f'<div class="bars" role="img" aria-label="Aggregations, shared and unshared">{bars}</div></div>'
    )


def _bar(name: str, how: str, count: int, most: int, hatched: bool) -> str:
    return (
        f'<span class="muted">{f"<b>{name}</b>, " if name else ""}{how}</span>'
        f'<span class="track"><i class="{"un" if hatched else ""}" style="width:{100 * count / most:.2f}%">'
        "</i></span>"
        f'<span class="num">{compact(count)}</span>'
    )


def _matching(queries: Sequence[Plan], words: Sequence[str]) -> list[str]:
    names = [str(query["name"]) for query in queries]
    return [name for name in names if all(word in name.casefold() for word in words)] if words else []


def _stream(stream: Plan, words: Sequence[str]) -> tuple[str, int]:
    """A stream's families and stores, and how many queries match what is searched for."""
    parts, hits = [], 0
    families = [
        (family, sum(len(_matching(one["queries"], words)) for one in family["selections"]))
        for family in stream["families"]
    ]
    wanted = [(family, count) for family, count in families if count or not words]
    for at, (family, count) in enumerate(wanted[:FAMILIES]):
        hits += count
        parts.append(_family(family, words, at < (1 if stream["queries"] > MANY else OPEN) or bool(words)))
    store_sets = [
        (one, len(_matching(one["queries"], words)))
        for one in stream["store_sets"]
        if not words or _matching(one["queries"], words)
    ]
    for store_set, count in store_sets:
        hits += count
        parts.append(_store_set(store_set, words))
    if not parts:
        return "", 0
    more = len(wanted) - FAMILIES
    if more > 0:
        text = f"and {counted(more, 'smaller family', 'smaller families')} more; search to see one"
        parts.append(f'<p class="pad muted small" style="border-top:1px solid var(--line)">{text}</p>')
    kinds = [
        counted(stream["queries"], "query", "queries"),
        counted(len(stream["families"]), "family", "families"),
        counted(sum(len(family["selections"]) for family in stream["families"]), "selection"),
        counted(len(stream["project"]), "scalar expression")
        + f" for {counted(sum(one['uses'] for one in stream['project']), 'use')}",
    ]
    if stream["on_demand"]:
        kinds.append(f"{number(stream['on_demand'])} on demand")
    html = (
        f'<section class="card" data-key="{e(stream["name"])}" aria-label="Stream {e(stream["name"])}">'
        f'<div class="bar" style="border-bottom:0"><h2>{e(stream["name"])}</h2>'
        f'<span class="muted small">{e(" · ".join(kinds))}</span></div>{"".join(parts)}</section>'
    )
    return html, hits


def _family(family: Plan, words: Sequence[str], is_open: bool) -> str:
    kind = {
        "range": f"range of {readable(family['scalar'] or '')}",
        "signature": f"signature of {counted(family['conjuncts'], 'condition')}",
    }.get(family["kind"], "alone")
    facts = [counted(len(family["selections"]), "selection"), counted(family["queries"], "query", "queries")]
    if family["constants"]:
        facts.append(counted(family["constants"], "constant"))
    if family["fragments"]:
        facts.append(counted(family["fragments"], "fragment"))
    if family["group_by"]:
        facts.append("by " + ", ".join(map(readable, family["group_by"])))
    selections = [one for one in family["selections"] if not words or _matching(one["queries"], words)]
    inside = "".join(_selection(one, words) for one in selections[:SELECTIONS])
    if len(selections) > SELECTIONS:
        inside += f'<p class="small muted">and {counted(len(selections) - SELECTIONS, "selection")} more</p>'
    agreed = e(readable(" AND ".join(family["agrees"])))
    agrees = f'<p class="small muted">all ask that <span class="cond">{agreed}</span></p>'
    return (
        f'<details class="fam" data-key="family {family["id"]}"{" open" if is_open else ""} '
        'data-testid="family">'
        f"<summary><b>Family {family['id']}</b><span>{e(kind)}</span>"
        f'<span class="muted small" style="margin-left:auto">{e(" · ".join(facts))}</span></summary>'
        f'<div class="in">{agrees if family["agrees"] else ""}{inside}</div></details>'
    )


def _selection(selection: Plan, words: Sequence[str]) -> str:
    queries = selection["queries"]
    slicing = selection["slicing"]
    where = f'<span class="cond">{e(readable(selection["own"] or selection["where"] or "every row"))}</span>'
    holds = selection["holds"]
    held = f"{counted(holds['slices'], 'slice')} held {holds['place']}"
    shared = (
        f"slices shared by {counted(len(queries), 'query', 'queries')} with "
        f"{counted(selection['windows'], 'kind')} of window"
        if len(queries) > 1
        else "slices of one query"
    )
    return (
        f'<div class="sel" data-key="selection {selection["id"]}"><div class="row apart"><span>{where}</span>'
        f'<span class="muted small">{e(shared)}: {number(slicing["edges"])} per {e(slicing["per"])} · '
        f"{e(held)}</span></div>"
        f"{_ruler(slicing)}{_chips(queries, words)}</div>"
    )


def _ruler(slicing: Plan) -> str:
    """The next edges, as far apart as the slices between them are long."""
    edges = slicing["next_edges"]
    lengths = [after - before for before, after in pairwise(edges)]
    if not lengths or not sum(lengths):
        return ""
    names = [*slicing["lengths"], *[""] * len(lengths)]
    ticks = "".join(
        f'<i style="flex:{length / sum(lengths):.4f}" title="{e(name)}"></i>'
        for length, name in zip(lengths, names, strict=False)
    )
    about = "slices of " + ", ".join(slicing["lengths"][:8])
    return f'<div class="ruler" role="img" aria-label="{e(about)}">{ticks}</div>'


def _chips(queries: Sequence[Plan], words: Sequence[str]) -> str:
    hits = set(_matching(queries, words))
    ordered = sorted(queries, key=lambda query: query["name"] not in hits)
    chips = "".join(
        f'<a class="chip{" hit" if query["name"] in hits else ""}" href="{e(query_link(query["name"]))}" '
        f'title="{e(query["name"])}: {e(_window(query))}">{e(query["name"])}</a>'
        for query in ordered[:CHIPS]
    )
    more = (
        f'<span class="small muted">and {len(queries) - CHIPS:,} more</span>' if len(queries) > CHIPS else ""
    )
    return f'<div class="chips">{chips}{more}</div>'


def _window(query: Plan) -> str:
    window = query["window"]
    return str(window["text"] if isinstance(window, dict) else window)


def _store_set(store_set: Plan, words: Sequence[str]) -> str:
    stores = store_set["stores"]
    held = sum(store["bytes"] for store in stores)
    rows = "".join(
        f'<tr><td class="name">{e(store["kind"])}</td><td>{e(readable(store["keeps"]))}</td>'
        f'<td class="num">{number(store["entries"])}</td><td class="num">{size(store["bytes"])}</td>'
        f"<td>{e(store['place'])}</td></tr>"
        for store in stores
    )
    where = e(readable(store_set["where"] or "every row"))
    return (
        f'<details class="fam" data-key="store set {store_set["id"]}" open data-testid="store-set"><summary>'
        f'<b>On demand {store_set["id"]}</b><span class="cond">{where}</span>'
        f'<span class="muted small" style="margin-left:auto">the last {e(store_set["longest"])} · '
        f"{counted(len(stores), 'store')} · {size(held)}</span></summary>"
        f'<div class="in">{_chips(store_set["queries"], words)}<table class="t" style="margin-top:8px">'
        "<thead><tr>"
        '<th scope="col">Store</th><th scope="col">Keeps</th><th scope="col" class="num">Entries</th>'
        '<th scope="col" class="num">Bytes</th><th scope="col">Place</th></tr></thead><tbody>'
        f"{rows}</tbody></table>"
        "</div></details>"
    )
