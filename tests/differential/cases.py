"""Random streams and random query sets, from whatever draws the dice: a seed, or Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from transom.elements import Clock, ClockKind, Prod, Punctuation

SECOND = 1_000_000
COLUMNS = {
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "site": pa.int32(),
    "kind": pa.string(),
    "price": pa.float64(),
    "qty": pa.int64(),
    "amount": pa.decimal128(10, 2),
}
NAN = float("nan")


@dataclass
class BatchCase:
    """A batch: its rows, the queries that join and leave before it, and what is said at its end."""

    rows: list[dict[str, Any]]
    joining: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    punctuations: list[Punctuation] = field(default_factory=list)
    ended: bool = False
    splits: int = 1  # tasks that share the batch
    prods: list[Prod] = field(default_factory=list)
    lookups: list[tuple[str, int]] = field(default_factory=list)  # queries, each with a window's length


@dataclass
class Case:
    """A stream in batches, and the queries over it.

    A query that leaves and one that comes later are two, even if both go by the same name: `called` has
    the names of those that are not called by their key.
    """

    queries: dict[str, str]
    partial: set[str]
    batches: list[BatchCase]
    slack: int | None
    horizon: int | None
    called: dict[str, str] = field(default_factory=dict)

    def name(self, query: str) -> str:
        """What a query is called."""
        return self.called.get(query, query)

    @property
    def living(self) -> list[str]:
        """The queries that are there after the last batch."""
        found: dict[str, None] = {}
        for batch in self.batches:
            for query in batch.leaving:
                found.pop(query, None)
            found |= dict.fromkeys(batch.joining)
        return list(found)


def often(rng: Random, usual: Any, *rare: Any) -> Any:
    """Mostly the usual."""
    return rng.choice(rare) if rng.randint(0, 4) == 0 else usual


def stream(rng: Random, most: int = 24) -> list[dict[str, Any]]:
    """Rows with disorder, ties, nulls and gaps, around the year 1970 as well as after it."""
    now = rng.choice([0, -70 * SECOND, 1_357_041_600 * SECOND])
    rows = []
    for number in range(rng.randint(1, most)):
        now += often(rng, rng.randint(0, 4), 15, 60) * SECOND
        jitter = often(rng, 0, -12 * SECOND, -3 * SECOND - 1, 1)
        rows.append(
            {
                "ts": often(rng, now + jitter, now, None),
                "seq": often(rng, number * 2, None, number - 5),
                "site": often(rng, rng.randint(1, 3), None),
                "kind": often(rng, rng.choice("ab"), None),
                "price": often(rng, rng.choice([1.5, 10.0, 99.25, -3.0]), None, NAN, -0.0, 0.0),
                "qty": often(rng, rng.randint(-5, 200), None),
                "amount": often(rng, rng.choice([Decimal("1.10"), Decimal("20.05"), Decimal("-7.00")]), None),
            }
        )
    return rows


PERIODIC = ("ends", "ends", "starts", "integer", "rows")  # forms of windows that all groups share


def window(rng: Random, forms: Sequence[str] = (*PERIODIC, "session", "keys")) -> tuple[str, str]:
    """A bracket, or a call of window(): one of the two is empty."""
    form = rng.choice(forms)
    size, slide = rng.randint(1, 20), rng.randint(1, 15)
    if form == "session":
        return session(rng)
    if form == "keys":
        return of_keys(rng)
    if form == "starts":
        length = max(size, slide)  # Spark's window() wants the slide within the range
        return "", f"window(ts, '{length} seconds', '{slide} seconds', '{rng.randint(0, slide - 1)} seconds')"
    if form == "integer":
        return f"[RANGE {size} SLIDE {slide} WATTR seq]", ""
    if form == "rows":
        return f"[ROWS {size} SLIDE {slide}]", ""
    origin = often(rng, "", " ORIGIN '1 second'")
    unit, scale = often(rng, ("seconds", 1), ("ms", 1000))
    return f"[RANGE '{size * scale} {unit}' SLIDE '{slide * scale} {unit}'{origin}]", ""


DrawWindow = Callable[[Random], tuple[str, str]]


def session(rng: Random) -> tuple[str, str]:
    """A bracket or a call that asks for sessions."""
    gap = rng.choice([1, 1, 2, 3, 5, 10])
    choices = [(f"[SESSION {gap} seconds]", ""), (f"[SESSION {gap} WATTR seq]", "")]
    return rng.choice([*choices, ("", f"session_window(ts, '{gap} seconds')")])


def of_keys(rng: Random) -> tuple[str, str]:
    """A bracket that asks for the last rows of each key."""
    columns, rows = rng.choice(["site", "kind", "site, kind"]), rng.randint(1, 6)
    return f"[PARTITION BY {columns} ROWS {rows} SLIDE {rng.randint(1, rows)}]", ""


CONDITIONS = [
    "price > 5", "price <= 10", "price != 10", "price >= 99.25", "qty BETWEEN 10 AND 100", "qty > 50.5",
    "site = 1", "site IN (1, 2)", "site IS NOT NULL", "kind = 'a'", "kind IN ('a', NULL)", "NOT kind = 'b'",
    "amount > 1.105", "amount <= 20.05", "qty > seq", "price <=> NULL", "kind <=> 'b'", "qty % 2 = 0",
    "coalesce(site, 9) > 2", "site NOT IN (1)", "amount < 3",
]  # fmt: skip
AGGREGATES = [
    "count(*)", "count(price)", "sum(price)", "sum(qty)", "avg(price)", "avg(qty)", "min(price)",
    "max(price)", "min(kind)", "max(kind)", "max(qty)", "sum(amount)", "avg(amount)", "min(amount)",
    "stddev(qty)", "var_pop(qty)", "sum(qty * 2 + 1)", "count(*) FILTER (WHERE price > 5)",
    "sum(qty) FILTER (WHERE kind = 'a')", "sum(qty) / count(*)", "max(seq) - min(seq)", "max(ts)",
    "sum(price * qty)", "coalesce(sum(qty), 0) + 1", "approx_count_distinct(kind)",
    "approx_percentile(qty, 0.5)", "stddev(price)", "count_if(price > 5)", "bool_and(price > 5)",
    "any(qty > 100) FILTER (WHERE site = 1)", "count(DISTINCT kind)", "count(DISTINCT kind, site)",
    "sum(DISTINCT qty)", "avg(DISTINCT amount)", "median(price)", "percentile(qty, array(0.25, 0.9))",
    "percentile_disc(0.4) WITHIN GROUP (ORDER BY price DESC)", "mode(kind)",
    "first(kind)", "last(price) IGNORE NULLS", "any_value(qty)", "min_by(kind, price)", "max_by(qty, amount)",
    "corr(qty, seq)", "covar_samp(price, qty)", "regr_slope(qty, seq)", "regr_avgx(amount, qty)",
    "regr_r2(qty, seq)", "skewness(qty)", "kurtosis(price)", "max(struct(site, kind))",
    "min(array(price, qty))", "collect_list(qty)", "collect_set(kind)", "array_agg(DISTINCT price)",
    "string_agg(kind, '-')", "listagg(kind) WITHIN GROUP (ORDER BY price DESC)", "string_agg(DISTINCT kind, ',')",
    "approx_top_k(kind)", "approx_top_k(qty, 2)", "histogram_numeric(qty, 60)", "hll_sketch_agg(kind)",
    "hll_sketch_estimate(hll_sketch_agg(site, 10))",
]  # fmt: skip
# Their last digits depend on the order of operations, so that rows whose values are equal may have any order.
ROUNDED = ("stddev", "var_pop", "corr", "covar_samp", "regr_", "skewness", "kurtosis")
KEYS = ["site", "kind", "price", "qty % 3", "amount"]
HAVINGS = ["count(*) > 1", "sum(qty) > 20", "max(price) > 5 OR count(*) = 1"]


def some(rng: Random, choices: list[Any], most: int, least: int = 0) -> list[Any]:
    return rng.sample(choices, rng.randint(least, most))


def query(rng: Random, draw_window: DrawWindow = window) -> str:
    """A query over the stream, with a window, groups, predicates and aggregates of its own."""
    keys = some(rng, KEYS, 2)
    parts, joiner = some(rng, CONDITIONS, 3), rng.choice([" AND ", " AND ", " OR "])
    return query_of(rng, draw_window(rng), keys, joiner.join(parts))


def query_of(
    rng: Random, over: tuple[str, str], keys: list[str], where: str, pool: list[str] = AGGREGATES
) -> str:
    """A query over a window, some groups and some rows, with aggregates of a pool."""
    bracket, call = over
    if bracket.startswith("[PARTITION BY"):
        keys = bracket.removeprefix("[PARTITION BY ").partition(" ROWS")[0].split(", ")
    aggregates, having = some(rng, pool, min(3, len(pool)), 1), rng.choice(["", "", *HAVINGS])
    selected = [*keys, *(f"{text} AS x{i}" for i, text in enumerate(aggregates))]
    text = f"SELECT {', '.join(selected)} FROM s {bracket}"
    if where:
        text += f" WHERE {where}"
    groups = [call, *keys] if call else keys
    if groups:
        text += f" GROUP BY {', '.join(groups)}"
    text = f"{text} HAVING {having}" if having else text
    if (
        pool is not AGGREGATES
        or over[0][:5] in ("[SESS", "[PART")
        or over[1][:7] == "session"
        or rng.randint(0, 4) > 0
    ):
        return text
    exact = [f"x{i}" for i, aggregate in enumerate(aggregates) if not aggregate.startswith(ROUNDED)]
    choices = [*keys, *exact, "count(*)"]
    terms = some(rng, choices, min(2, len(choices)), 1)
    ends = ("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")
    order = ", ".join(f"{term}{rng.choice(ends)}" for term in terms)
    return f"{text} ORDER BY {order} LIMIT {rng.randint(1, 3)}"


def punctuation(rng: Random, rows: list[dict[str, Any]]) -> Punctuation:
    """A punctuation somewhere in the stream's time, for all rows or for some groups."""
    times = [row["ts"] for row in rows if row["ts"] is not None] or [0]
    until = rng.randint(min(times) // SECOND, max(times) // SECOND + 10) * SECOND
    since = often(rng, None, until - 8 * SECOND, until - 20 * SECOND)
    where = rng.choice(
        [(), (), (("site", 1),), (("site", 2),), (("kind", "a"),), (("site", 1), ("kind", "b"))]
    )
    return Punctuation(Clock("s", "ts", ClockKind.TIME), until, since, where)


def cut_into_batches(rng: Random, rows: list[dict[str, Any]], most: int) -> list[BatchCase]:
    """The stream in batches, with what is said at their ends."""
    bounds = [0, *sorted(rng.randint(0, len(rows)) for _ in range(rng.randint(0, most - 1))), len(rows)]
    batches = []
    for start, stop in pairwise(bounds):
        said = [punctuation(rng, rows)] if rng.randint(0, 3) == 0 else []
        ended = rng.randint(0, 9) == 0
        batches.append(BatchCase(rows[start:stop], punctuations=said, ended=ended, splits=rng.randint(1, 3)))
    batches[-1].ended = batches[-1].ended or rng.randint(0, 1) == 0
    return batches


def follow_numbers(queries: dict[str, str], batches: list[BatchCase]) -> None:
    """A clock that nobody follows is not recorded: who joins it later can't be told what it missed."""
    if any("WATTR seq" in text for text in queries.values()):
        queries["first"] = "SELECT count(*) FROM s [RANGE 10 SLIDE 10 WATTR seq]"
        batches[0].joining.append("first")


def ruled(
    rng: Random, queries: dict[str, str], batches: list[BatchCase], called: dict[str, str] | None = None
) -> Case:
    """A case with a slack and a horizon, of whose queries some want windows seen in part."""
    partial = {name for name in queries if rng.randint(0, 3) == 0}
    slack = rng.choice([0, 0, 5 * SECOND, 30 * SECOND, None])
    horizon = rng.choice([None, None, 366 * 86_400 * SECOND, 20 * SECOND])
    return Case(queries, partial, batches, slack, horizon, called or {})


def case(rng: Random, draw_window: DrawWindow = window) -> Case:
    """A stream cut into batches at random, with queries that join and leave between them."""
    batches = cut_into_batches(rng, stream(rng), 6)
    named = {f"q{i}": query(rng, draw_window) for i in range(rng.randint(1, 4))}
    for name in named:
        joins = often(rng, 0, 1, 2) % len(batches)
        batches[joins].joining.append(name)
        leaves = joins + often(rng, len(batches), 1, 2)
        if leaves < len(batches):
            batches[leaves].leaving.append(name)
    follow_numbers(named, batches)
    return ruled(rng, named, batches)


# --- queries that have much in common --------------------------------------------------------

CONSTANTS = {
    "price": ["5", "10", "1.5", "99.25", "-3", "0", "1e300", "double('NaN')"],
    "qty": ["0", "10", "50", "100", "-5", "50.5", "199", "10.0"],
    "amount": ["1.10", "1.105", "20.05", "-7", "0", "3"],
    "seq": ["0", "7", "20", "-3"],
    "site": ["1", "2", "3", "2.5"],
    "kind": ["'a'", "'b'", "''", "'aa'"],
    "qty % 3": ["0", "1", "2"],
    "coalesce(site, 9)": ["1", "2", "9"],
}
OPAQUE = ["kind LIKE 'a%'", "qty > seq", "length(kind) = 1 AND kind LIKE '%b'", "abs(price) > qty",
          "(site = 1 OR kind = 'b')", "NOT (qty > seq)", "isnan(price)"]  # fmt: skip
RESTS = ["", "", "kind = 'a'", "site IS NOT NULL", "price > 0 AND site IN (1, 2)", *OPAQUE[:3]]


def condition(rng: Random, scalar: str) -> str:
    """A condition on one scalar that a place on its axis tells."""
    one, other = rng.choice(CONSTANTS[scalar]), rng.choice(CONSTANTS[scalar])
    op = rng.choice(["=", "!=", "<", "<=", ">", ">=", "<=>"])
    simple = f"{scalar} {op} {one}"
    forms = [
        simple, simple, simple, f"{scalar} BETWEEN {one} AND {other}", f"{scalar} IN ({one}, {other})",
        f"{scalar} NOT IN ({one})", f"{scalar} IN ({one}, NULL)", f"{scalar} IS NULL",
        f"{scalar} IS NOT NULL",
        f"({scalar} < {one} OR {scalar} > {other})", f"({scalar} = {one} OR {scalar} IS NULL)",
        f"NOT ({scalar} >= {one} AND {scalar} != {other})", f"{scalar} > {one} AND {scalar} <= {other}",
    ]  # fmt: skip
    return rng.choice(forms)


def where(rng: Random, rest: str, scalar: str) -> str:
    """`rest AND scalar op constant`; sometimes one of the two, sometimes something opaque."""
    parts = often(
        rng, [condition(rng, scalar), rest], [condition(rng, scalar)], [rest], [rng.choice(OPAQUE), rest]
    )
    rng.shuffle(parts)
    return " AND ".join(part for part in parts if part)


def pool_of_windows(rng: Random) -> list[tuple[str, str]]:
    """Two or three windows, mostly along the same clock and of related lengths."""
    step = rng.randint(1, 6)
    form = often(
        rng, "[RANGE '{} seconds' SLIDE '{} seconds']", "[RANGE {} SLIDE {} WATTR seq]", "[ROWS {} SLIDE {}]"
    )
    related = [(form.format(step * rng.randint(1, 4), step * rng.randint(1, 3)), "") for _ in range(2)]
    return [*related, often(rng, related[0], window(rng))]


def alike(rng: Random, draw_window: DrawWindow | None = None) -> Case:
    """Many queries from few windows, predicates and groups, that come and go, some under an old name."""
    rest, scalar = rng.choice(RESTS), rng.choice(list(CONSTANTS))
    wheres = [where(rng, rest, scalar) for _ in range(rng.randint(2, 4))]
    return joined_and_left(rng, wheres, draw_window)


def over_several_scalars(rng: Random) -> Case:
    """Queries that compare the same two to four scalars with constants, joined by AND, OR and NOT, that come and go."""
    scalars = rng.sample(list(CONSTANTS), rng.randint(2, 4))
    rest = often(rng, "", rng.choice(RESTS))
    wheres = [
        often(rng, combined(rng, scalars), combined(rng, scalars[1:])) for _ in range(rng.randint(3, 8))
    ]
    return joined_and_left(rng, [f"{text} AND {rest}" if rest else text for text in wheres])


def combined(rng: Random, scalars: list[str]) -> str:
    """Conditions on each of some scalars, mostly joined by AND."""
    parts = [condition(rng, scalar) for scalar in scalars]
    rng.shuffle(parts)
    conjunction, disjunction = (word.join(f"({part})" for part in parts) for word in (" AND ", " OR "))
    mixed = f"({parts[0]}) AND NOT ({' AND '.join(f'({part})' for part in parts[1:] or parts)})"
    return rng.choice([conjunction, conjunction, f"({disjunction})", f"NOT ({conjunction})", mixed])


def joined_and_left(rng: Random, wheres: list[str], draw_window: DrawWindow | None = None) -> Case:
    """Queries with some of these predicates and of few windows, that come and go, some under an old name."""
    batches = cut_into_batches(rng, stream(rng, 60), 10)
    windows = pool_of_windows(rng) if draw_window is None else [draw_window(rng) for _ in range(3)]
    groups = [some(rng, KEYS, 2) for _ in range(rng.randint(1, 2))]
    pool = some(rng, AGGREGATES, rng.choice([2, 4, 12]), 1)
    queries: dict[str, str] = {}
    called: dict[str, str] = {}
    for i in range(rng.randint(3, 8)):
        batch_id, text = often(rng, 0, rng.randrange(len(batches)), rng.randrange(len(batches))), ""
        for life in range(4):
            text = often(rng, text, "") or query_of(
                rng, rng.choice(windows), rng.choice(groups), rng.choice(wheres), pool
            )
            key = f"q{i}.{life}"
            queries[key], called[key] = text, f"q{i}"
            batches[batch_id].joining.append(key)
            batch_id += rng.randint(1, 2 * len(batches))
            if batch_id >= len(batches) or len(queries) > 11:
                break
            batches[batch_id].leaving.append(key)
            batch_id += often(rng, 0, 1)
            if batch_id >= len(batches):
                break
    follow_numbers(queries, batches)
    return ruled(rng, queries, batches, called)


# --- prods -----------------------------------------------------------------------------------


def prodded(rng: Random, one: Case) -> Case:
    """The same case, with prods at the end of its batches: timely ones, too early ones and too late ones."""
    for batch in one.batches:
        batch.prods += [prod(rng, one) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    return one


def prod(rng: Random, one: Case) -> Prod:
    clock = often(rng, Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER))
    values = [row[clock.attribute] for batch in one.batches for row in batch.rows]
    known = sorted(value for value in values if value is not None) or [0]
    until = rng.choice(known) + rng.choice([0, 1, SECOND, 20 * SECOND, -5 * SECOND])
    pattern = often(rng, (), (("site", rng.choice([1, 2, 3])),), (("kind", rng.choice(["a", "b"])),))
    names = tuple({one.name(key) for key in one.queries})
    moment = often(rng, until, None)
    return Prod(
        clock,
        moment,
        exactly=moment is not None and rng.random() < 0.3,
        where=pattern,
        queries=often(rng, None, tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))),
    )


# --- queries that differ in how they group -----------------------------------------------------


def nested(rng: Random) -> Case:
    """Queries with long windows whose GROUP BY lists lie inside of each other, overlap, or are the same."""
    batches = cut_into_batches(rng, stream(rng, 80), 4)
    for batch in batches:
        batch.splits = 1
    keys = rng.sample(["site", "kind", "qty % 3", "price"], 3)
    groups = [keys[:n] for n in range(4)] + [keys[::-1], keys[1:]]
    rest, scalar = rng.choice(RESTS), rng.choice(["price", "qty", "site"])
    wheres = often(rng, [where(rng, rest, scalar) for _ in range(3)], [rest])
    pool = some(rng, AGGREGATES, rng.choice([2, 4, 12]), 1)
    queries: dict[str, str] = {}
    for i in range(rng.randint(3, 8)):
        step = 30 * rng.randint(1, 4)
        bracket = f"[RANGE '{step * rng.randint(1, 3)} seconds' SLIDE '{step} seconds']"
        queries[f"q{i}"] = query_of(rng, (bracket, ""), rng.choice(groups), rng.choice(wheres), pool)
        joins = often(rng, 0, rng.randrange(len(batches)))
        batches[joins].joining.append(f"q{i}")
        leaves = joins + often(rng, len(batches), 1)
        if leaves < len(batches):
            batches[leaves].leaving.append(f"q{i}")
    return ruled(rng, queries, batches)


# --- queries that look at earlier windows --------------------------------------------------------

LAGGED = ["count(*)", "sum(qty)", "max(kind)", "avg(price)", "sum(qty) / count(*)", "collect_list(qty)"]
DEFAULTS = {"count(*)": "0", "sum(qty)": "-1", "max(kind)": "'none'", "avg(price)": "0.5"}


def lag(rng: Random) -> str:
    """A value of an earlier window."""
    text = rng.choice(LAGGED)
    default = f", {DEFAULTS[text]}" if text in DEFAULTS and rng.randint(0, 2) == 0 else ""
    distance = often(rng, 1, 2, 3)
    return f"LAG({text}{f', {distance}' if distance > 1 or default else ''}{default}) OVER WINDOWS"


def following_query(rng: Random) -> str:
    """A query with values of earlier windows, windows without rows, or both."""
    bracket, call = window(rng, PERIODIC)
    keys = some(rng, KEYS, 2)
    is_empty, parts = rng.randint(0, 1) == 0, some(rng, CONDITIONS, 2)
    aggregates = some(rng, AGGREGATES, 2, 1)
    aggregates += [lag(rng) for _ in range(rng.randint(0 if is_empty else 1, 2))]
    selected = [*keys, *(f"{text} AS x{i}" for i, text in enumerate(aggregates))]
    text = f"SELECT {', '.join(selected)} FROM s {bracket}"
    text += f" WHERE {' AND '.join(parts)}" if parts else ""
    groups = [call, *keys] if call else keys
    text += f" GROUP BY {', '.join(groups)}" if groups else ""
    havings = ["", "", "", *HAVINGS, f"count(*) > {lag(rng).replace('avg(price)', 'count(*)')}"]
    havings += ["count(*) = 0", "count(*) < 2"] if is_empty else []
    having = rng.choice([one for one in havings if "kind" not in one and "collect" not in one])
    text += f" HAVING {having}" if having else ""
    if rng.randint(0, 4) == 0:
        text += f" ORDER BY count(*) DESC LIMIT {rng.randint(1, 3)}"
    return text + (
        rng.choice([" EMIT EMPTY", " EMIT EMPTY FOR 2 WINDOWS", " EMIT EMPTY FOR 1 WINDOWS"]) * is_empty
    )


def following(rng: Random) -> Case:
    """Queries that look at earlier windows, and some that do not, that come and go."""
    batches = cut_into_batches(rng, stream(rng, 40), 7)
    named = {f"q{i}": following_query(rng) for i in range(rng.randint(1, 4))}
    named |= {"plain": query(rng)} if rng.randint(0, 1) else {}
    for name in named:
        joins = often(rng, 0, 1, 2) % len(batches)
        batches[joins].joining.append(name)
        leaves = joins + often(rng, len(batches), 2, 3)
        if leaves < len(batches):
            batches[leaves].leaving.append(name)
    follow_numbers(named, batches)
    return ruled(rng, named, batches)
