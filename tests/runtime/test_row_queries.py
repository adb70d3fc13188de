"""Queries without a window: each row that satisfies one is a result, once; they live and fail like other queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SettingError, SQLError, StateError
from transom.plan.limits import Limits

SCHEMA = "card string, amount double, country string, ts timestamp"
BIG = "SELECT card, amount FROM tx WHERE amount > 5000"


class Payments:
    """An engine with a feed of payments."""

    def __init__(self, make_engine: EngineFactory, checkpoint: Any = None, **options: Any):
        self.engine = make_engine(checkpoint, **options)
        self.feed = self.engine.feed("tx", SCHEMA, time="ts", slack="1 minute")

    def pay(self, *rows: tuple[Any, ...]) -> None:
        """A batch of payments: the card, the amount and the second."""
        names = ("card", "amount", "country", "ts")
        made = [(card, amount, "DE", f"2024-01-01 00:00:{at:02}") for card, amount, at in rows]
        self.feed.push([dict(zip(names, row, strict=True)) for row in made])
        self.engine.step()


@pytest.fixture
def payments(make_engine: EngineFactory) -> Payments:
    return Payments(make_engine)


def cards(query: Any) -> list[str]:
    found: list[str] = query.results()["card"].to_pylist()
    return found


@ON_BOTH
def test_each_row_that_satisfies_the_query_is_a_result_with_its_event_time(
    make_engine: EngineFactory,
) -> None:
    payments = Payments(make_engine)
    query = payments.engine.register(BIG, "big")
    payments.pay(("a", 6000.0, 30), ("b", 10.0, 31), ("c", 5000.5, 5), ("d", None, 6))
    results = query.results()
    assert results.column_names == ["event_time", "card", "amount", "kind", "batch", "made"]
    assert results["card"].to_pylist() == ["c", "a"]  # in the order of event time
    assert results["event_time"].cast(pa.string()).to_pylist()[0].startswith("2024-01-01 00:00:05")
    assert set(results["kind"].to_pylist()) == {"final"}
    assert set(results["batch"].to_pylist()) == {1}


def test_a_row_behind_the_watermark_is_a_result_too(payments: Payments) -> None:
    query = payments.engine.register(BIG)
    payments.pay(("a", 6000.0, 59))
    payments.feed.push([{"card": "old", "amount": 7000.0, "ts": "2023-12-31 00:00:00"}])
    payments.engine.step()
    assert cards(query) == ["a", "old"]
    assert (query.account.counted, query.account.late) == (2, 0)
    assert query.late().num_rows == 0
    assert query.late(rows=True).num_rows == 0


def test_a_query_that_joins_later_finds_rows_from_then_on(payments: Payments) -> None:
    payments.pay(("a", 6000.0, 1))
    query = payments.engine.register(BIG)
    payments.pay(("b", 6000.0, 2))
    assert cards(query) == ["b"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT * FROM tx", ["card", "amount", "country", "ts"]),
        ("SELECT t.*, amount * 2 AS twice FROM tx t", ["card", "amount", "country", "ts", "twice"]),
        ("SELECT card, card AS again, 'rule 7' AS rule FROM tx", ["card", "again", "rule"]),
        ("SELECT upper(country), amount FROM tx", ["upper(country)", "amount"]),
        ("SELECT * FROM (SELECT card AS c, amount FROM tx WHERE amount > 5)", ["c", "amount"]),
        ("SELECT x.* FROM (SELECT card AS c FROM tx) x", ["c"]),
    ],
)
def test_the_select_list(payments: Payments, text: str, columns: list[str]) -> None:
    query = payments.engine.register(text)
    payments.pay(("a", 6000.0, 1))
    results = query.results()
    assert results.column_names == ["event_time", *columns, "kind", "batch", "made"]
    assert results.num_rows == 1


def test_a_system_column_makes_room_for_a_column_of_the_user(payments: Payments) -> None:
    query = payments.engine.register("SELECT card AS kind, amount AS event_time FROM tx")
    payments.pay(("a", 6000.0, 1))
    assert query.results().column_names == [
        "transom_event_time", "kind", "event_time", "transom_kind", "batch", "made",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT count(*) FROM tx", "the query has no window"),
        ("SELECT card, count(*) FROM tx GROUP BY card", "the query has no window"),
        ("SELECT card FROM tx GROUP BY card", "the query has no window"),
        ("SELECT card FROM tx ORDER BY card LIMIT 3", "the query has no window, which ORDER BY needs; write"),
        ("SELECT card FROM tx LIMIT 3", "the query has no window, which LIMIT needs; write"),
        ("SELECT card FROM tx HAVING card = 'a'", "the query has no window, which HAVING needs; write"),
        ("SELECT card FROM tx EMIT EARLY EVERY 1 second", "the query has no window"),
        ("SELECT card, window_end FROM tx", "the query has no window"),
        ("SELECT card FROM tx WHERE count(*) > 3", "an aggregate is not allowed in WHERE"),
        ("SELECT DISTINCT card FROM tx", "SELECT DISTINCT is not supported"),
        ("SELECT card, cart FROM tx", "unknown column cart"),
        ("SELECT card, amount AS card FROM tx", "two columns of the result are called card"),
        ("SELECT x.* FROM tx", "unknown name x"),
    ],
)
def test_texts_that_need_a_window_or_are_wrong(payments: Payments, text: str, message: str) -> None:
    with pytest.raises(SQLError, match=message.replace("(", r"\(")):
        payments.engine.register(text)


def test_no_query_reads_the_results_of_a_row_query(payments: Payments) -> None:
    payments.engine.register(BIG, "big")
    with pytest.raises(SQLError, match="big has no window: no query can read its results; create a view"):
        payments.engine.register("SELECT count(*) AS n FROM big [RANGE 1 minute SLIDE 1 minute]")


def test_a_row_query_reads_results_of_other_queries_views_and_tables(payments: Payments) -> None:
    engine = payments.engine
    engine.table("owners", [{"card": "a", "owner": "Ann"}, {"card": "a", "owner": "Al"}])
    engine.view("large", "SELECT card, amount / 1000 AS thousands FROM tx WHERE amount > 5000")
    engine.register(
        "SELECT card, count(*) AS n FROM tx [RANGE 10 seconds SLIDE 10 seconds] GROUP BY card", "counts"
    )
    busy = engine.register("SELECT card, n FROM counts WHERE n > 1")
    owned = engine.register("SELECT owner FROM tx JOIN owners ON tx.card = owners.card WHERE amount > 5000")
    viewed = engine.register("SELECT * FROM large WHERE thousands > 6.5")
    payments.pay(("a", 6000.0, 1), ("a", 7000.0, 2), ("b", 9000.0, 3))
    engine.drain()
    assert [(row["card"], row["n"]) for row in busy.results().to_pylist()] == [("a", 2)]
    assert sorted(owned.results()["owner"].to_pylist()) == ["Al", "Al", "Ann", "Ann"]
    assert viewed.results()["thousands"].to_pylist() == [7.0, 9.0]


def test_a_row_query_over_a_join_of_two_streams(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feeds = [engine.feed(name, "card string, ts timestamp", time="ts") for name in ("paid", "moved")]
    query = engine.register(
        "SELECT p.card, m.ts AS moved_at FROM paid p JOIN moved m "
        "ON p.card = m.card AND m.ts BETWEEN p.ts AND p.ts + INTERVAL 1 minute"
    )
    feeds[0].push([("a", "2024-01-01 00:00:00"), ("b", "2024-01-01 00:00:00")])
    engine.step()
    feeds[1].push([("a", "2024-01-01 00:00:30"), ("b", "2024-01-01 00:02:00")])
    engine.drain()
    assert cards(query) == ["a"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("LEFT JOIN", [("a", "a"), ("b", None)]),
        ("RIGHT JOIN", [("a", "a"), (None, "b")]),
        ("FULL JOIN", [("a", "a"), ("b", None), (None, "b")]),
        ("LEFT SEMI JOIN", ["a"]),
        ("LEFT ANTI JOIN", ["b"]),
    ],
)
def test_a_row_query_over_an_outer_join_of_two_streams(
    make_engine: EngineFactory, form: str, expected: list[Any]
) -> None:
    engine = make_engine()
    feeds = [engine.feed(name, "card string, ts timestamp", time="ts") for name in ("paid", "moved")]
    items = (
        "p.card" if form.startswith("LEFT ") and form != "LEFT JOIN" else "p.card AS paid, m.card AS moved"
    )
    query = engine.register(
        f"SELECT {items} FROM paid p {form} moved m "
        "ON p.card = m.card AND m.ts BETWEEN p.ts AND p.ts + INTERVAL 1 minute"
    )
    feeds[0].push([("a", "2024-01-01 00:00:00"), ("b", "2024-01-01 00:00:00")])
    engine.step()
    feeds[1].push([("a", "2024-01-01 00:00:30"), ("b", "2024-01-01 00:02:00")])
    engine.drain()
    rows = query.results().to_pylist()
    results = cards(query) if items == "p.card" else [(row["paid"], row["moved"]) for row in rows]
    assert sorted(results, key=str) == sorted(expected, key=str)
    assert query.account.counted == len(expected)


UNMOVED = (
    "SELECT p.card FROM paid p LEFT ANTI JOIN moved m "
    "ON p.card = m.card AND abs(m.ts - p.ts) <= INTERVAL 10 seconds"
)


@pytest.mark.parametrize(("is_kept", "expected"), [(False, ["c"]), (True, ["b", "c"])])
def test_a_row_whose_partner_may_have_come_before_the_join_began_is_no_result(
    make_engine: EngineFactory, tmp_path: Path, is_kept: bool, expected: list[str]
) -> None:
    def started() -> tuple[Any, Any, Any]:
        engine = make_engine(tmp_path)
        paid, moved = (
            engine.feed(name, "card string, ts timestamp", time="ts") for name in ("paid", "moved")
        )
        return engine, paid, moved

    engine, paid, moved = started()
    if is_kept:  # another query has the rows of the join
        engine.register(UNMOVED, "earlier")
    moved.push([("a", "2024-01-01 00:00:02")])
    engine.step()
    engine.register(UNMOVED, "query")
    paid.push([("a", "2024-01-01 00:00:05"), ("b", "2024-01-01 00:00:05"), ("c", "2024-01-01 00:00:13")])
    engine.step()
    engine.stop()
    engine, paid, moved = started()
    engine.drain()
    assert sorted(cards(engine.query("query"))) == expected


def test_results_survive_a_restart_and_none_comes_twice(make_engine: EngineFactory, tmp_path: Path) -> None:
    first = Payments(make_engine, tmp_path)
    first.engine.register(BIG, "big")
    first.pay(("a", 6000.0, 1))
    second = Payments(make_engine, tmp_path)
    second.pay(("b", 6000.0, 2))
    query = second.engine.query("big")
    assert query.is_row_query
    assert cards(query) == ["a", "b"]
    assert query.account.counted == 2


def test_a_batch_that_fails_before_its_commit_gives_its_results_once(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    first = Payments(make_engine, tmp_path)
    first.engine.register(BIG, "big")
    first.pay(("a", 6000.0, 1))

    def fail(report: Any) -> None:
        raise KeyboardInterrupt

    first.engine._loop.listeners.append(fail)  # results are written, the batch is not committed
    with pytest.raises(KeyboardInterrupt):
        first.pay(("b", 6000.0, 2))
    second = Payments(make_engine, tmp_path)
    second.engine.step()
    assert cards(second.engine.query("big")) == ["a", "b"]


def test_edit_pause_resume_rename_and_drop(payments: Payments) -> None:
    query = payments.engine.register(BIG, "big")
    payments.pay(("a", 6000.0, 1))
    same = query.edit("SELECT card, amount AS amount FROM tx WHERE amount > 5000")
    assert (same.kept, same.results_continue) == (True, True)
    payments.pay(("b", 6000.0, 2))
    assert cards(query) == ["a", "b"]
    query.pause()
    payments.pay(("c", 6000.0, 3))
    query.resume()
    payments.pay(("d", 6000.0, 4))
    assert cards(query) == ["a", "b", "d"]
    query.rename("large")
    payments.pay(("e", 6000.0, 5))
    assert cards(query) == ["a", "b", "d", "e"]
    other = query.edit("SELECT card, amount FROM tx WHERE amount > 7000")
    assert (other.kept, other.results_continue) == (False, False)
    payments.pay(("f", 6000.0, 6), ("g", 8000.0, 6))
    assert cards(query) == ["g"]
    assert (query.account.rows, query.account.counted) == (2, 1)
    windows = query.edit("SELECT card, count(*) AS n FROM tx [RANGE 1 minute SLIDE 1 minute] GROUP BY card")
    assert not windows.results_continue
    payments.pay(("h", 8000.0, 7))
    assert not query.is_row_query
    query.edit(BIG)
    payments.pay(("i", 8000.0, 8))
    assert cards(query) == ["i"]
    query.drop()
    payments.pay(("j", 8000.0, 9))
    assert cards(query) == ["i"]
    assert "large" not in payments.engine.queries()


def test_what_a_row_query_has_not(payments: Payments) -> None:
    query = payments.engine.register(BIG, "big")
    payments.pay(("a", 6000.0, 1))
    for call in (query.prod, query.lookup, query.coverage, lambda: query.tune(0.5)):
        with pytest.raises(SettingError, match="big has no"):
            call()
    with pytest.raises(StateError, match="big has no EMIT EARLY"):
        query.accuracy()
    with pytest.raises(SettingError, match="can't be looked up"):
        payments.engine.lookup(BIG)
    with pytest.raises(SettingError, match="partial is for windows"):
        payments.engine.register(BIG, partial=True)
    assert payments.engine.prod() == {}


def test_subscribers_and_sinks_get_the_rows(payments: Payments, tmp_path: Path) -> None:
    query, heard = payments.engine.register(BIG, "big"), []
    query.subscribe(lambda table: heard.extend(table["card"].to_pylist()))
    query.sink("parquet", str(tmp_path / "own"))
    payments.engine.sink("parquet", str(tmp_path / "all"))
    payments.pay(("a", 6000.0, 1))
    payments.pay(("b", 6000.0, 2))
    assert heard == ["a", "b"]
    assert sorted(pq.read_table(tmp_path / "own")["card"].to_pylist()) == ["a", "b"]
    assert pq.read_table(tmp_path / "all").num_rows == 2


def test_a_rule_whose_function_fails_is_suspended_alone(payments: Payments) -> None:
    def fails(amount: float) -> bool:
        raise ValueError("no")

    payments.engine.udf("is_odd_amount", fails, "boolean")
    payments.engine.register("SELECT card FROM tx WHERE is_odd_amount(amount)", "bad")
    good = payments.engine.register(BIG, "good")
    for at in range(4):
        payments.pay(("a", 6000.0, at))
    assert "function failed" in (payments.engine.query("bad").suspended or "")
    assert len(cards(good)) == 4


def test_a_rule_that_too_many_rows_satisfy_is_suspended_alone(make_engine: EngineFactory) -> None:
    payments = Payments(make_engine, limits=Limits(row_results=2))
    everything = payments.engine.register("SELECT * FROM tx", "everything")
    good = payments.engine.register(BIG, "good")
    payments.pay(("a", 6000.0, 1), ("b", 1.0, 2), ("c", 2.0, 3))
    assert "3 rows of a batch satisfy it" in (everything.suspended or "")
    assert everything.results().num_rows == 0
    assert cards(good) == ["a"]


def test_explain_shows_the_index_and_what_rules_share(payments: Payments) -> None:
    engine = payments.engine
    for i in range(10):
        engine.register(
            f"SELECT card FROM tx WHERE amount > {i * 100} AND (country = 'DE' OR card = 'x')", f"r{i}"
        )
    engine.register(
        "SELECT card, amount FROM tx WHERE amount > 300 AND (country = 'DE' OR card = 'x')", "twin"
    )
    assert "joins with the next batch" in engine.query("twin").explain()
    payments.pay(("a", 6000.0, 1))
    text = engine.explain()
    assert "stream tx: 11 queries without a window" in text
    assert "index over amount: 10 constants of 10 conditions, searched once for each row" in text
    own = engine.query("twin").explain()
    assert "amount > 300.0: found by the index" in own
    assert "evaluated for the rows that are left" in own
    assert "its conditions are shared with r3" in own
    plan = json.loads(engine.query("twin").explain("json"))
    assert [query["name"] for stream in plan["streams"] for query in stream["rows"]["queries"]] == ["twin"]
    assert "without a window" in engine.explain("mermaid")
    assert engine.query("twin").decisions() == []
    assert "11 queries" in engine.explain_text("SELECT card FROM tx") or engine.explain_text(
        "SELECT card FROM tx"
    )


def test_hundreds_of_rules_look_at_their_own_rows_only(payments: Payments) -> None:
    texts = {f"r{i}": f"SELECT card FROM tx WHERE amount > {10_000 - i} AND card != 'x'" for i in range(300)}
    payments.engine.register_all(texts)
    considered: list[int] = []
    payments.engine.follow(
        lambda report: considered.extend(part.considered for part in report.outcome.matches)
    )
    payments.pay(*(("a", float(amount), 1) for amount in range(0, 10_000, 10)))
    total = sum(payments.engine.query(name).account.counted for name in texts)
    assert total > 0
    assert sum(considered) == total  # not 300 times 1,000


@ON_BOTH
def test_a_checkpoint_of_many_rules_is_read_back(make_engine: EngineFactory, tmp_path: Path) -> None:
    first = Payments(make_engine, tmp_path)
    texts = {f"r{i}": f"SELECT card, amount FROM tx WHERE amount > {i}" for i in range(50)}
    first.engine.register_all(texts)
    first.pay(("a", 10.5, 1))
    second = Payments(make_engine, tmp_path)
    second.engine.register_all(texts)  # as a program does at every start
    second.pay(("b", 20.5, 2))
    found = [cards(second.engine.query(f"r{i}")) for i in (0, 10, 11, 20, 21)]
    assert found == [["a", "b"], ["a", "b"], ["b"], ["b"], []]
