"""The sharing view: which queries share which slices and fragments, and what that saves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from transom.dashboard.display_text import esc, format_bytes, format_count, format_number
from transom.dashboard.frame import DashboardView, query_link
from transom.dashboard.overview import FIRST_QUERY_LINK
from transom.dashboard.widgets import Panel, box, empty_state, skeleton, text_field
from transom.plan.explain.text_parts import counted, readable
from transom.server.service import Service

Plan = Mapping[str, Any]

OPEN_FAMILIES = 2  # expanded at first; only one if the stream has many queries
MANY_QUERIES = 100
MOST_FAMILIES = 40  # shown per stream
MOST_SELECTIONS = 12  # shown per family
MOST_QUERIES = 10  # shown per selection
PLAN_TICKS = 3  # refreshes per reading of the plan: the plan of thousands of queries takes time to write


def sharing_queries(plan: str, name: str) -> list[str] | None:
    """The other queries that use a query's slices or stores; None if the plan does not contain the query."""
    for stream in json.loads(plan)["streams"]:
        groups = [selection for family in stream["families"] for selection in family["selections"]]
        for group in (*groups, *stream["store_sets"]):
            names = [query["name"] for query in group["queries"]]
            if name in names:
                return [other for other in names if other != name]
        for query in (stream.get("rows") or {}).get("queries", ()):  # without a window
            if query["name"] == name:
                return list(query["alike"])
    return None


class SharingView(DashboardView):
    """Shows which queries are computed together, and how much work that saves."""

    section = "sharing"
    title = "Sharing"

    def __init__(self, service: Service, search: str):
        super().__init__(service)
        self.search = search
        self._plan_text = ""
        self._plan: Plan | None = None
        self._ticks = 0

    def build(self) -> None:
        Panel(
            '<div><h1>Sharing</h1><p class="sub">Queries with the same filter share slices; '
            "a family groups filters that are evaluated together.</p></div>",
            classes="head",
        )
        self.saved = Panel(f'<div class="card">{skeleton(3)}</div>', classes="section", data_testid="saved")
        with box("row section"):
            text_field(
                self._search,
                self.search,
                0.25,
                type="search",
                placeholder="Search names  ( / )",
                aria_label="Search queries",
                data_search="",
                data_testid="search",
                style="width:280px",
            )
            self.count = Panel("", classes="small muted", role="status")
        self.streams = Panel(f'<div class="card">{skeleton(8)}</div>', classes="stack", data_testid="sharing")

    async def _search(self, text: str) -> None:
        self.search = text
        if self._plan is not None:
            self._draw(self._plan)

    def fetch(self) -> Plan | None:
        """The plan, if it has changed."""
        self._ticks += 1
        if self._ticks % PLAN_TICKS != 1:
            return None
        text = self.service.explain(format="json")
        if text == self._plan_text:
            return None
        self._plan_text = text
        plan: Plan = json.loads(text)
        return plan

    def show(self, plan: Plan | None) -> None:
        if plan is not None:
            self._plan = plan
            self._draw(plan)

    def _draw(self, plan: Plan) -> None:
        streams = [stream for stream in plan["streams"] if stream["queries"] or stream["on_demand"]]
        if not streams:
            self.saved.set("")
            text = "Register queries to see what they share."
            self.streams.set(
                f'<div class="card">{empty_state("sharing", "Nothing to share yet", text, FIRST_QUERY_LINK)}</div>'
            )
            return
        self.saved.set(_savings_html(streams))
        words = self.search.casefold().split()
        sections = [stream_html(stream, words) for stream in streams]
        hits = sum(count for _, count in sections)
        self.count.set(counted(hits, "query matches", "queries match") if words else "")
        no_match = empty_state("lost", "No matches", "No query has all of these words in its name.")
        html = "".join(html for html, _ in sections)
        self.streams.set(html or f'<div class="card">{no_match}</div>')


def total_work(streams: Sequence[Plan]) -> dict[str, int]:
    """The number of aggregations in all streams: as done, and as they would be without sharing."""
    names = ("partials", "finals", "unshared_partials", "unshared_finals")
    return {name: sum(stream["work"][name] for stream in streams) for name in names}


def _savings_html(streams: Sequence[Plan]) -> str:
    work = total_work(streams)
    done = work["partials"] + work["finals"]
    unshared = work["unshared_partials"] + work["unshared_finals"]
    if not done:
        text = "The savings appear after the first batch."
        nothing = empty_state("none", "Nothing computed yet", text, slim=True)
        return f'<div class="card">{nothing}</div>'
    ratio = unshared / done
    pairs = (
        ("Rows into slices", work["partials"], work["unshared_partials"]),
        ("Slices into windows", work["finals"], work["unshared_finals"]),
    )
    most = max(max(pair[1:]) for pair in pairs) or 1
    bars = "".join(
        _bar(name if not which else "", ("shared", "not shared")[which], count, most, bool(which))
        for name, *counts in pairs
        for which, count in enumerate(counts)
    )
    return (
        '<div class="card pad" style="display:grid;grid-template-columns:240px '
        'minmax(0,1fr);gap:32px;align-items:center">'
        f'<div><div class="big" data-testid="ratio">{ratio:,.1f} ×</div><p class="muted">fewer aggregations: '
        f"{format_count(done)} instead of {format_count(unshared)} without sharing.</p></div>"
        f'<div class="bars" role="img" aria-label="Aggregations with and without sharing">{bars}</div></div>'
    )


def _bar(name: str, how: str, count: int, most: int, hatched: bool) -> str:
    return (
        f'<span class="muted">{f"<b>{name}</b>, " if name else ""}{how}</span>'
        f'<span class="track"><i class="{"un" if hatched else ""}" style="width:{100 * count / most:.2f}%">'
        "</i></span>"
        f'<span class="num">{format_count(count)}</span>'
    )


def _matching(queries: Sequence[Plan], words: Sequence[str]) -> list[str]:
    names = [str(query["name"]) for query in queries]
    return [name for name in names if all(word in name.casefold() for word in words)] if words else []


def stream_html(stream: Plan, words: Sequence[str]) -> tuple[str, int]:
    """The HTML of a stream's families and stores, and how many queries match the search."""
    parts, hits = [], 0
    families = [
        (family, sum(len(_matching(selection["queries"], words)) for selection in family["selections"]))
        for family in stream["families"]
    ]
    matching = [(family, count) for family, count in families if count or not words]
    expanded = 1 if stream["queries"] > MANY_QUERIES else OPEN_FAMILIES
    for at, (family, count) in enumerate(matching[:MOST_FAMILIES]):
        hits += count
        parts.append(_family(family, words, at < expanded or bool(words)))
    store_sets = [
        (store_set, len(_matching(store_set["queries"], words)))
        for store_set in stream["store_sets"]
        if not words or _matching(store_set["queries"], words)
    ]
    for store_set, count in store_sets:
        hits += count
        parts.append(_store_set(store_set, words))
    if not parts:
        return "", 0
    more = len(matching) - MOST_FAMILIES
    if more > 0:
        text = f"{counted(more, 'smaller family', 'smaller families')} not shown; search to see them"
        parts.append(f'<p class="pad muted small" style="border-top:1px solid var(--line)">{text}</p>')
    facts = [
        counted(stream["queries"], "query", "queries"),
        counted(len(stream["families"]), "family", "families"),
        counted(sum(len(family["selections"]) for family in stream["families"]), "selection"),
        counted(len(stream["project"]), "scalar expression")
        + f" for {counted(sum(scalar['uses'] for scalar in stream['project']), 'use')}",
    ]
    if stream["on_demand"]:
        facts.append(f"{format_number(stream['on_demand'])} on demand")
    html = (
        f'<section class="card" data-key="{esc(stream["name"])}" aria-label="Stream {esc(stream["name"])}">'
        f'<div class="bar" style="border-bottom:0"><h2>{esc(stream["name"])}</h2>'
        f'<span class="muted small">{esc(" · ".join(facts))}</span></div>{"".join(parts)}</section>'
    )
    return html, hits


def _family(family: Plan, words: Sequence[str], is_open: bool) -> str:
    kind = {
        "range": f"range of {readable(family['scalar'] or '')}",
        "grid": f"grid of {readable(family['scalar'] or '')}",
        "gaps": "sessions of several gaps",
        "signature": f"signature of {counted(family['conjuncts'], 'condition')}",
    }.get(family["kind"], "single query")
    facts = [counted(len(family["selections"]), "selection"), counted(family["queries"], "query", "queries")]
    if family["constants"]:
        facts.append(counted(family["constants"], "constant"))
    if family["fragments"]:
        facts.append(counted(family["fragments"], "fragment"))
    if family["group_by"]:
        facts.append("by " + ", ".join(map(readable, family["group_by"])))
    selections = [
        selection for selection in family["selections"] if not words or _matching(selection["queries"], words)
    ]
    body = "".join(_selection(selection, words) for selection in selections[:MOST_SELECTIONS])
    if len(selections) > MOST_SELECTIONS:
        more = counted(len(selections) - MOST_SELECTIONS, "more selection")
        body += f'<p class="small muted">{more}</p>'
    condition = esc(readable(" AND ".join(family["agrees"])))
    common = f'<p class="small muted">all require <span class="cond">{condition}</span></p>'
    return (
        f'<details class="fam" data-key="family {family["id"]}"{" open" if is_open else ""} '
        'data-testid="family">'
        f"<summary><b>Family {family['id']}</b><span>{esc(kind)}</span>"
        f'<span class="muted small" style="margin-left:auto">{esc(" · ".join(facts))}</span></summary>'
        f'<div class="in">{common if family["agrees"] else ""}{body}</div></details>'
    )


def _selection(selection: Plan, words: Sequence[str]) -> str:
    queries = selection["queries"]
    slicing = selection["slicing"]
    where = f'<span class="cond">{esc(readable(selection["residual"] or selection["where"] or "all rows"))}</span>'
    holds = selection["holds"]
    rate = f"{counted(slicing['edges'], 'slice')} per {slicing['per']}"
    if slicing.get("gap") is not None:
        rate = f"sessions, gap {slicing['gap']}"
    if slicing.get("by_key"):
        rate = "the last rows of each key"
    held = f"{counted(holds['slices'], 'slice')} held {_place_text(holds['place'])}"
    shared = (
        f"shared by {counted(len(queries), 'query', 'queries')} with "
        f"{counted(selection['windows'], 'different window')}"
        if len(queries) > 1
        else "used by one query"
    )
    return (
        f'<div class="sel" data-key="selection {selection["id"]}"><div class="row apart"><span>{where}</span>'
        f'<span class="muted small">{esc(f"{shared} · {rate} · {held}")}</span></div>'
        f"{_ruler(slicing)}{_chips(queries, words)}</div>"
    )


def _ruler(slicing: Plan) -> str:
    """A ruler of the next slices, each as wide as the slice is long."""
    edges = slicing["next_edges"]
    lengths = [after - before for before, after in pairwise(edges)]
    if not lengths or not sum(lengths):
        return ""
    names = [*slicing["lengths"], *[""] * len(lengths)]
    ticks = "".join(
        f'<i style="flex:{length / sum(lengths):.4f}" title="{esc(name)}"></i>'
        for length, name in zip(lengths, names, strict=False)
    )
    label = "slices of " + ", ".join(slicing["lengths"][:8])
    return f'<div class="ruler" role="img" aria-label="{esc(label)}">{ticks}</div>'


def _chips(queries: Sequence[Plan], words: Sequence[str]) -> str:
    hits = set(_matching(queries, words))
    ordered = sorted(queries, key=lambda query: query["name"] not in hits)
    chips = "".join(
        f'<a class="chip{" hit" if query["name"] in hits else ""}" href="{esc(query_link(query["name"]))}" '
        f'title="{esc(query["name"])}: {esc(_window(query))}">{esc(query["name"])}</a>'
        for query in ordered[:MOST_QUERIES]
    )
    more = (
        f'<span class="small muted">and {len(queries) - MOST_QUERIES:,} more</span>'
        if len(queries) > MOST_QUERIES
        else ""
    )
    return f'<div class="chips">{chips}{more}</div>'


def _place_text(place: str) -> str:
    return "on executors" if place == "executors" else "on the driver"


def _window(query: Plan) -> str:
    window = query["window"]
    return str(window["text"] if isinstance(window, dict) else window)


def _store_set(store_set: Plan, words: Sequence[str]) -> str:
    stores = store_set["stores"]
    total_bytes = sum(store["bytes"] for store in stores)
    rows = "".join(
        f'<tr><td class="name">{esc(store["kind"])}</td><td>{esc(readable(store["keeps"]))}</td>'
        f'<td class="num">{format_number(store["entries"])}</td><td class="num">{format_bytes(store["bytes"])}</td>'
        f"<td>{_place_text(store['place'])}</td></tr>"
        for store in stores
    )
    where = esc(readable(store_set["where"] or "all rows"))
    return (
        f'<details class="fam" data-key="store set {store_set["id"]}" open data-testid="store-set"><summary>'
        f'<b>On demand {store_set["id"]}</b><span class="cond">{where}</span>'
        f'<span class="muted small" style="margin-left:auto">last {esc(store_set["longest"])} · '
        f"{counted(len(stores), 'store')} · {format_bytes(total_bytes)}</span></summary>"
        f'<div class="in">{_chips(store_set["queries"], words)}<table class="t" style="margin-top:8px">'
        "<thead><tr>"
        '<th scope="col">Store</th><th scope="col">Content</th><th scope="col" class="num">Entries</th>'
        '<th scope="col" class="num">Size</th><th scope="col">Location</th></tr></thead><tbody>'
        f"{rows}</tbody></table>"
        "</div></details>"
    )
