"""Queries over UNION ALL and explode against the oracle: disorder, late rows, restarts, prods, queries that join."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import transom
from tests.case_counts import case_count
from tests.differential.test_views import SECOND, of_kind, shown
from transom import oracle
from transom.elements import Clock, Prod
from transom.oracle.views import IN_VIEW, SOURCE, OracleView, answer_union, exploded
from transom.sql import Catalog, Query, Relation, bind_one
from transom.sql.interpreter.scalars import InterpretedScalars

SCALARS = InterpretedScalars()
TIME = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "t": {
        "ts": TIME,
        "a": pa.int32(),
        "items": pa.list_(pa.int32()),
        "scores": pa.map_(pa.string(), pa.int32()),
    },
    "u": {"at": TIME, "b": pa.int32()},
}
TEXTS = {"t": "ts timestamp, a int, items array<int>, scores map<string, int>", "u": "at timestamp, b int"}
TIMES = {"t": "ts", "u": "at"}
WINDOWS = ["[RANGE 10 seconds SLIDE 10 seconds]", "[RANGE 20 seconds SLIDE 5 seconds]"]
Batch = tuple[str, list[dict[str, Any]]]


def drawn_batches(draw: Random) -> list[Batch]:
    batches: list[Batch] = []
    tops = {"t": 0, "u": 0}
    for _ in range(draw.randint(2, 8)):
        stream, rows = draw.choice(["t", "u"]), []
        for _ in range(draw.randint(0, 8)):
            tops[stream] += draw.randint(0, 5)
            time = max(0, tops[stream] - draw.choice([0, 0, 1, 4, 12])) * SECOND
            if stream == "u":
                rows.append({"at": time, "b": draw.choice([1, 2, 3, None])})
                continue
            items = draw.choice([None, [], [1], [2, None], [1, 1, 3]])
            scores = draw.choice([None, [], [("x", 1)], [("x", None), ("y", 2)]])
            rows.append({"ts": time, "a": draw.choice([1, 2, 3, None]), "items": items, "scores": scores})
        batches.append((stream, rows))
    return batches


def engine_answers(
    texts: Mapping[str, str],
    views: Mapping[str, str],
    batches: list[Batch],
    slacks: Mapping[str, int],
    draw: Random,
    prodded: bool,
) -> tuple[dict[str, pa.Table], dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Final results, early results after each batch, and accounts."""
    strategy, restarts = draw.choice(["auto", "naive"]), draw.random() < 0.3
    with TemporaryDirectory() as directory:
        engine, feeds, queries = None, {}, {}
        early: dict[str, list[dict[str, Any]]] = {name: [] for name in texts}
        for batch in [*batches, None]:
            if engine is None or restarts:
                engine = transom.Engine(backend="local", checkpoint=directory, strategy=strategy)
                feeds = {
                    name: engine.feed(name, text, time=TIMES[name], slack=f"{slacks[name]} seconds")
                    for name, text in TEXTS.items()
                }
                for name, text in views.items():
                    engine.view(name, text)
                queries = engine.register_all(texts)
            if batch is None:
                for name in feeds:
                    engine.flush(name)
            elif batch[1]:
                schema = pa.schema(list(SCHEMAS[batch[0]].items()))
                feeds[batch[0]].push(pa.Table.from_pylist(batch[1], schema=schema))
            engine.step(empty=True)
            if prodded and batch is not None:
                for name, query in queries.items():
                    early[name] += of_kind(query.prod(), "early")
        results = {name: query.results() for name, query in queries.items()}
        accounts = {name: query.account for name, query in queries.items()}
        engine.stop()
        return results, early, accounts


def compare(
    bound: Mapping[str, Query],
    expected: oracle.OracleOutcome,
    answers: tuple[dict[str, pa.Table], dict[str, list[dict[str, Any]]], dict[str, Any]],
    outside: int = 0,
) -> None:
    """`outside` rows are in the oracle's stream only: those that the union leaves out."""
    results, early, accounts = answers
    for name, query in bound.items():
        names = [item.name for item in query.items]
        assert shown(of_kind(results[name], "final"), names) == shown(expected.results[name], names), (
            query.text
        )
        assert shown(early[name], names) == shown(expected.early[name], names), query.text
        account, theirs = accounts[name], expected.accounts[name]
        assert (account.counted, account.late) == (theirs["counted"], theirs["late"]), query.text
        assert account.unwanted == theirs["unwanted"] - outside, query.text
        assert account.rows == account.counted + account.unwanted + account.late, query.text


EXPLODED = {
    "explode(items)": ("SELECT ts, a, explode(items) AS item FROM t", "pos IS NOT NULL"),
    "explode_outer(items)": ("SELECT ts, a, explode_outer(items) AS item FROM t", "true"),
    "filtered": ("SELECT ts, a, explode(items) AS item FROM t WHERE a > 1", "pos IS NOT NULL AND a > 1"),
    "lateral": ("SELECT ts, a, item FROM t LATERAL VIEW explode(items) x AS item", "pos IS NOT NULL"),
}


@given(st.randoms(use_true_random=False))
@settings(max_examples=case_count(10), deadline=None)
def test_exploded_arrays_have_the_answers_of_the_oracle(draw: Random) -> None:
    batches, slack, prodded = drawn_batches(draw), draw.choice([0, 2, 5]), draw.random() < 0.5
    views, bound, texts, made = {}, {}, {}, []
    columns = {**SCHEMAS["t"], "pos": pa.int32(), "item": pa.int32()}
    for i, which in enumerate(draw.sample(list(EXPLODED), 2)):
        text, where = EXPLODED[which]
        views[f"v{i}"] = text
        key = draw.choice(["a", "item", "item % 2"])
        query = (
            f"SELECT {key} AS k, count(*) AS n, sum(item) AS s, count(item) AS c FROM v{i} {draw.choice(WINDOWS)} "
            f"{draw.choice(['', 'WHERE a != 2', 'WHERE item > 1'])} GROUP BY {key}"
        )
        types = {"ts": TIME, "a": pa.int32(), "item": pa.int32()}
        view = OracleView(f"v{i}", {name: name for name in types}, types, "ts", where)
        texts[f"q{i}"] = query
        bound[f"q{i}"] = view.query(bind_one(query, Catalog({f"v{i}": view.relation()}), SCALARS))
        prods = [Prod(Clock(f"v{i}", "ts"))] if prodded else []
        for stream, rows in batches:
            rows = exploded(rows, "items", "pos", "item") if stream == "t" else []
            made += view.batches([oracle.OracleBatch("t", rows, prods=prods)], columns, SCALARS)
        made.append(oracle.OracleBatch(f"v{i}", [], end_of_stream=True))
    rules = {
        name: oracle.OracleStreamRules("ts", slack=slack * SECOND, columns={**types, IN_VIEW: pa.bool_()})
        for name in views
    }
    expected = oracle.answer(bound, made, rules, SCALARS)
    slacks = {"t": slack, "u": 0}
    compare(bound, expected, engine_answers(texts, views, batches, slacks, draw, prodded))


UNIONS = {
    "two streams": [("t", "a", "true"), ("u", "b", "true")],
    "filters": [("t", "a * 2", "a > 1"), ("u", "b", "b IS NOT NULL")],
    "one stream twice": [("t", "a", "a > 1"), ("t", "a + 10", "a < 3")],
    "three parts": [("t", "a", "a = 1"), ("u", "b + 1", "true"), ("t", "a", "a IS NULL")],
}


@given(st.randoms(use_true_random=False))
@settings(max_examples=case_count(10), deadline=None)
def test_unions_have_the_answers_of_the_oracle(draw: Random) -> None:
    batches, prodded = drawn_batches(draw), draw.random() < 0.5
    slacks = {"t": draw.choice([0, 2, 5]), "u": draw.choice([0, 3])}
    parts = UNIONS[draw.choice(list(UNIONS))]
    union = " UNION ALL ".join(
        f"SELECT {TIMES[stream]} AS ts, CAST({value} AS INT) AS v, '{stream}' AS src FROM {stream} WHERE {where}"
        for stream, value, where in parts
    )
    texts, bound, types = {}, {}, {"ts": TIME, "v": pa.int32(), "src": pa.string()}
    flag = OracleView("un", {}, types, "ts")
    relation = Relation("un", {**types, IN_VIEW: pa.bool_()}, "ts")
    for i in range(3):
        key, where = draw.choice(["src", "v", ""]), draw.choice(["", "WHERE v > 1", "WHERE src = 't'"])
        query = f"SELECT {key + ', ' if key else ''}count(*) AS n, sum(v) AS s FROM un {draw.choice(WINDOWS)} {where}"
        texts[f"q{i}"] = query + (f" GROUP BY {key}" if key else "")
        bound[f"q{i}"] = flag.query(bind_one(texts[f"q{i}"], Catalog({"un": relation}), SCALARS))
    made, outside = [], 0
    for stream, rows in batches:
        in_union = []
        for source, value, where in parts:
            columns = {"ts": TIMES[stream], "v": f"CAST({value} AS INT)", "src": f"'{source}'"}
            if source != stream or not rows:
                continue
            view = OracleView("un", {**columns, SOURCE: f"'{source}'"}, types, "ts", where)
            in_union += view.batches([oracle.OracleBatch(stream, rows)], SCHEMAS[stream], SCALARS)[0].rows
        outside += sum(not row[IN_VIEW] for row in in_union)
        made.append(oracle.OracleBatch("un", in_union, prods=[Prod(Clock("un", "ts"))] if prodded else []))
    made.append(oracle.OracleBatch("un", [], end_of_stream=True))
    columns = {**types, IN_VIEW: pa.bool_(), SOURCE: pa.string()}
    rules = oracle.OracleStreamRules("ts", slack=0, columns=columns)
    sources = {stream: slacks[stream] * SECOND for stream, _, _ in parts}
    expected = answer_union(bound, made, "un", rules, sources, SCALARS)
    text = texts if draw.random() < 0.5 else {
        name: query.replace("FROM un", f"FROM ({union}) x") for name, query in texts.items()
    }  # fmt: skip
    compare(bound, expected, engine_answers(text, {"un": union}, batches, slacks, draw, prodded), outside)
