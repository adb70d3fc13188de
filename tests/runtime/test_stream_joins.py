"""Joins of two streams through the engine: what queries share, what is kept, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from transom.errors import CostError, SettingError
from transom.plan.limits import Limits

AUTH, SETTLE = "card bigint, amount double, ts timestamp", "card int, amount double, ts timestamp"
WINDOW = "[RANGE 5 minutes SLIDE 5 minutes]"
CLOSE = "a.card = s.card AND s.ts BETWEEN a.ts AND a.ts + INTERVAL 10 minutes"
JOINED = f"FROM auth a JOIN settle s ON {CLOSE} {WINDOW}"
PER_CARD = f"SELECT a.card, count(*) AS n, sum(s.amount) AS total {JOINED} GROUP BY a.card"


def at(minute: float) -> datetime:
    return datetime(2026, 3, 2, 12, tzinfo=UTC) + timedelta(minutes=minute)


def rows(*values: tuple[int | None, float, float]) -> list[dict[str, Any]]:
    return [{"card": card, "amount": amount, "ts": at(minute)} for card, amount, minute in values]


def payments(
    make_engine: EngineFactory, place: Path, slack: str = "1 minute", **options: Any
) -> tuple[transom.Engine, Any, Any]:
    """An engine with feeds of authorizations and settlements."""
    engine = make_engine(place / "checkpoint", **options)
    auth = engine.feed("auth", AUTH, time="ts", slack=slack)
    return engine, auth, engine.feed("settle", SETTLE, time="ts", slack=slack)


def finals(query: Any) -> list[tuple[Any, ...]]:
    """The final results: the minute of the window's end, then the items."""
    names = [item.name for item in query.bound.items]
    table = query.results().to_pylist()
    return sorted(
        ((row["window_end"] - at(0)) / timedelta(minutes=1), *(row[name] for name in names))
        for row in table
        if row["kind"] == "final"
    )


AUTHORIZED = rows((1, 5.0, 0), (2, 7.0, 1), (1, 3.0, 4), (None, 1.0, 2))
SETTLED = rows((1, 5.0, 3), (1, 2.5, 6), (2, 7.0, 30), (None, 1.0, 2))
EXPECTED = [(5.0, 1, 1, 5.0), (10.0, 1, 2, 5.0)]


@ON_BOTH
@pytest.mark.parametrize("pushed", [True, False], ids=["feeds", "batch DataFrames"])
def test_a_join_of_two_streams(make_engine: EngineFactory, tmp_path: Path, pushed: bool) -> None:
    if pushed:
        engine, auth, settle = payments(make_engine, tmp_path)
        auth.push(AUTHORIZED)
        settle.push(SETTLED)
    else:
        engine = make_engine(tmp_path)
        for name, values, card in (("auth", AUTHORIZED, pa.int64()), ("settle", SETTLED, pa.int32())):
            schema = pa.schema([("card", card), ("amount", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
            engine.stream(name, make_engine.rows(pa.Table.from_pylist(values, schema)), time="ts")
    query = engine.register(PER_CARD)
    engine.drain()
    assert finals(query) == EXPECTED


@ON_BOTH
def test_a_join_of_files(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "checkpoint")
    for name, values in (("auth", AUTHORIZED), ("settle", SETTLED)):
        (tmp_path / name).mkdir()
        for number, row in enumerate(values):
            pa.parquet.write_table(pa.Table.from_pylist([row], pa.schema([
                ("card", pa.int64()), ("amount", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])),
                tmp_path / name / f"{number}.parquet")  # fmt: skip
        engine.stream(name, str(tmp_path / name), format="parquet", time="ts", slack="1 hour")
    query = engine.register(PER_CARD)
    engine.drain()
    assert finals(query) == EXPECTED


def test_the_order_of_arrival_does_not_matter(make_engine: EngineFactory, tmp_path: Path) -> None:
    for number, first in enumerate(("auth", "settle")):
        engine, auth, settle = payments(make_engine, tmp_path / str(number), slack="1 hour")
        query = engine.register(PER_CARD)
        feeds = [(auth, AUTHORIZED), (settle, SETTLED)]
        for feed, values in feeds if first == "auth" else feeds[::-1]:
            for row in values:
                feed.push([row])
                engine.step()
        engine.drain()
        assert finals(query) == EXPECTED


def test_a_stream_joined_with_itself(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, _ = payments(make_engine, tmp_path)
    query = engine.register(
        "SELECT x.card, count(*) AS n FROM auth x JOIN auth y ON x.card = y.card "
        f"AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL 5 minutes {WINDOW} GROUP BY x.card"
    )
    auth.push(rows((1, 1.0, 0), (1, 1.0, 2), (2, 1.0, 0)))
    engine.step()
    auth.push(rows((1, 1.0, 3), (1, 1.0, 3), (2, 1.0, 6)))
    engine.drain()
    assert finals(query) == [(5.0, 1, 5)]  # 0-2, and each of the two at 3 with 0 and with 2


def test_queries_share_a_join_whichever_stream_they_name_first(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    engine.register(PER_CARD.replace("sum(s.amount)", "sum(a.amount - s.amount)"))
    other = engine.register(
        "SELECT max(a.amount) AS m FROM settle z, auth a WHERE z.ts - a.ts <= INTERVAL 10 minutes "
        "AND a.ts <= z.ts AND z.card = a.card AND a.amount > z.amount GROUP BY window(join_time, '5 minutes')"
    )
    wider = engine.register(PER_CARD.replace("10 minutes", "11 minutes"))
    combined = engine.register(PER_CARD)
    auth.push(AUTHORIZED)
    settle.push(SETTLED)
    engine.step()
    joins = engine._loop.state.joins
    assert joins.keys() == {query.bound.stream for query in (other, wider, combined)}
    engine.drain()
    assert finals(other) == [(10.0, 5.0)]


def test_what_is_kept_is_bounded_by_the_time_bound(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    query = engine.register(PER_CARD)
    for minute in range(200):
        auth.push(rows((1, 1.0, minute)))
        settle.push(rows((1, 1.0, minute)))
        engine.step()
    kept = engine._loop.state.joins[query.bound.stream]
    assert all(rows <= 2 * 14 for rows in kept.rows)
    query.drop()
    engine.step()
    auth.push(rows((1, 1.0, 201)))
    engine.step()
    assert engine._loop.state.joins == {} and engine._loop.state.streams.keys() == {"auth", "settle"}


def test_rows_that_no_query_can_use_are_not_kept(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    high = engine.register(PER_CARD.replace("GROUP BY", "WHERE a.amount > 4.5 GROUP BY"))
    second = engine.register(PER_CARD.replace("GROUP BY", "WHERE a.amount > 3.5 AND a.card = 2 GROUP BY"))
    auth.push(AUTHORIZED)
    engine.step()
    assert engine._loop.state.joins[high.bound.stream].rows == (2, 0)
    shown = next(line for line in engine.explain().splitlines() if "rows of auth" in line)
    assert "2 rows of auth" in shown and "4.5" in shown and " OR " in shown
    every = engine.register(PER_CARD.replace("sum(s.amount)", "sum(s.amount + 0 * a.amount)"))
    auth.push(rows((1, 1.0, 21)))
    engine.step()
    assert engine._loop.state.joins[every.bound.stream].rows == (3, 0)
    settle.push(SETTLED)
    settle.push(rows((1, 1.0, 22)))
    engine.drain()
    assert finals(high) == [(5.0, 1, 1, 5.0), (10.0, 1, 1, 2.5)]
    assert finals(second) == []
    assert finals(every) == [(25.0, 1, 1, 1.0)]


def test_a_stream_that_is_behind_holds_the_clock_of_the_join(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    query = engine.register(PER_CARD)
    auth.push(rows((1, 1.0, 0), (1, 1.0, 60)))
    engine.step()
    assert finals(query) == []
    settle.push(rows((1, 2.0, 4)))  # an hour behind auth, and in time for its own stream
    engine.step()
    settle.push(rows((1, 2.0, 20)))
    engine.step()
    assert finals(query) == [(5.0, 1, 1, 2.0)]


def test_a_row_that_came_too_late_makes_windows_incomplete(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    query = engine.register(PER_CARD)
    for feed in (auth, settle):
        feed.push(rows((1, 1.0, 0), (1, 1.0, 9)))
    engine.step()
    auth.push(rows((1, 1.0, 1)))  # its pair with the settlement of 12:09 counts, an earlier one would not
    engine.drain()
    shown = [(row["n"], row["complete"]) for row in query.results().to_pylist()]
    assert shown == [(1, True), (3, False)]
    assert "1 arrived too late for some of their pairs" in engine.explain()


def test_a_query_that_joins_later_answers_windows_without_earlier_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    first = engine.register(PER_CARD)
    auth.push(rows((1, 1.0, 0)))
    engine.step()
    later = engine.register(PER_CARD.replace("sum(s.amount)", "max(a.amount + s.amount)"))
    for minute in (1, 6, 11, 16, 30):
        auth.push(rows((1, 1.0, minute)))
        settle.push(rows((1, 1.0, minute)))
        engine.step()
    engine.drain()
    assert [row[0] for row in finals(first)] == [5.0, 10.0, 15.0, 20.0, 35.0]
    assert [row[0] for row in finals(later)] == [20.0, 35.0]  # a row of 12:00 can have pairs until 12:10


def test_tables_and_queries_over_a_join(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    engine.table("cards", [{"card": 1, "bank": "North"}, {"card": 2, "bank": "South"}])
    by_bank = engine.register(
        f"SELECT bank, count(*) AS n FROM auth a {WINDOW} JOIN settle s ON {CLOSE} "
        "LEFT JOIN cards c ON a.card = c.card GROUP BY bank"
    )
    engine.register(PER_CARD, name="per_card")
    most = engine.register("SELECT max(n) AS most FROM per_card [RANGE 10 minutes SLIDE 10 minutes]")
    auth.push(AUTHORIZED)
    settle.push(SETTLED)
    engine.drain()
    assert finals(by_bank) == [(5.0, "North", 1), (10.0, "North", 2)]
    assert finals(most) == [(10.0, 2)]


def test_early_results_of_a_join(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    query = engine.register(f"{PER_CARD} EMIT EARLY AT 50% OF SLIDE")
    auth.push(AUTHORIZED)
    settle.push(SETTLED[:1])
    engine.step()
    assert [(row["n"], row["kind"]) for row in query.results().to_pylist()] == [(1, "early")]
    assert engine.prod()[query.name].to_pylist()[0]["n"] == 1
    assert query.prod(where={"auth.card": 2}).num_rows == 0
    assert query.prod(where={"auth.card": 1}).num_rows == 1


def test_a_hot_key_suspends_the_queries_of_its_join_only(make_engine: EngineFactory, tmp_path: Path) -> None:
    limits = Limits(joined_pairs=1_000)
    engine, auth, settle = payments(make_engine, tmp_path, limits=limits)
    product = PER_CARD.replace("sum(s.amount)", "sum(a.amount * s.amount)")
    hot = [engine.register(product), engine.register(product.replace("count(*)", "min(a.amount)"))]
    combined = engine.register(PER_CARD)
    plain = engine.register("SELECT count(*) AS n FROM settle [RANGE 5 minutes SLIDE 5 minutes]")
    auth.push(rows(*((1, 1.0, 0) for _ in range(40))))
    settle.push(rows(*((1, 1.0, 1) for _ in range(40))))
    engine.step()
    for query in hot:
        assert "more than 1,000 pairs in a batch" in str(query.suspended)
    engine.drain()
    assert finals(plain) == [(5.0, 40)]
    assert finals(combined) == [(5.0, 1, 1_600, 1_600.0)]
    assert list(engine._loop.state.joins) == [combined.bound.stream]


def test_a_join_that_keeps_too_many_rows_is_suspended(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, _ = payments(make_engine, tmp_path, limits=Limits(join_rows=30))
    query = engine.register(PER_CARD)
    auth.push(rows(*((number, 1.0, 0) for number in range(31))))
    engine.step()
    assert "keeps more than 30 rows" in str(query.suspended)


def test_what_a_join_refuses_at_registration(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _, _ = payments(make_engine, tmp_path)
    engine.feed("bursts", AUTH, time="ts", overload="sideline", budget=100)
    with pytest.raises(CostError, match="shorter time bound"):
        engine.register(PER_CARD.replace("10 minutes", "40 days"))
    with pytest.raises(SettingError, match="partial is not supported for joins"):
        engine.register(PER_CARD, partial=True)
    with pytest.raises(transom.SQLError, match="it has a budget"):
        engine.register(PER_CARD.replace("auth a", "bursts a"))
    query = engine.register(PER_CARD)
    engine.step()
    with pytest.raises(SettingError, match="counted, not kept"):
        query.late(rows=True)


def test_a_join_continues_after_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    name = engine.register(PER_CARD).name
    auth.push(AUTHORIZED)
    engine.step()
    engine.stop()
    engine, auth, settle = payments(make_engine, tmp_path)
    settle.push(SETTLED)
    engine.drain()
    assert finals(engine.query(name)) == EXPECTED


WITH_PAIRS = "count(*) + 0 * max(a.amount * s.amount)"  # needs pairs, because it reads both rows


@pytest.mark.parametrize("state", ["driver", "executors"])
@pytest.mark.parametrize("hash_bits", [64, 1], ids=["hashes", "hashes that collide"])
def test_aggregates_and_accounts_of_combined_pairs_are_those_of_pairs(
    make_engine: EngineFactory,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    hash_bits: int,
    state: str,
) -> None:
    from transom.kernel import join_pairs

    hashed = join_pairs.row_hashes
    monkeypatch.setattr(join_pairs, "row_hashes", lambda *given: hashed(*given) >> (64 - hash_bits))
    dice = Random(seed)
    engine, auth, settle = payments(make_engine, tmp_path, slack="2 minutes", state=state)
    aggregates = (
        "sum(a.amount) AS a, sum(s.amount) AS s, avg(s.amount) AS m, min(a.amount) AS i, max(s.amount) AS x"
    )
    on = "a.card = s.card AND s.ts BETWEEN a.ts - INTERVAL 3 minutes AND a.ts + INTERVAL 4 minutes"
    texts = [
        f"SELECT {key} {count} AS n, {aggregates} FROM auth a JOIN settle s ON {on} {WINDOW} {group}"
        for count in ("count(*)", WITH_PAIRS)
        for key, group in (("s.card,", "GROUP BY s.card"), ("", ""))
    ]
    queries = [engine.register(text) for text in texts]
    assert [query.bound.pairs_query is not None for query in queries] == [True, True, False, False]
    for batch in range(8):
        for feed in (auth, settle):
            feed.push(
                rows(
                    *(
                        (dice.choice([1, 2, 3, None]), dice.choice([0.25, 0.5, float("nan"), -1.0]), minute)
                        for minute in (batch * 3 + dice.randrange(300) / 60 for _ in range(15))
                    )
                )
            )
            engine.step()
        if batch == 4:  # windows close before their time, and later pairs are late for them
            for stream in ("auth", "settle"):
                engine.flush(stream)
            engine.drain()
    engine.drain()
    for combined, plain in zip(queries[:2], queries[2:], strict=True):
        assert combined.account == plain.account and combined.account.late
        shown = [
            sorted(repr({name: value for name, value in row.items() if name not in ("made", "latency", "n")})
                   for row in query.results().to_pylist())
            for query in (combined, plain)
        ]  # fmt: skip
        assert shown[0] == shown[1] and shown[0]


def test_combined_pairs_continue_after_a_restart_and_are_shared(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    first = engine.register(PER_CARD)
    other = engine.register(PER_CARD.replace("sum(s.amount)", "avg(a.amount)").replace("RANGE 5", "RANGE 10"))
    assert first.bound.stream == other.bound.stream
    assert (
        first.bound.stream
        != engine.register(f"{PER_CARD.replace('GROUP', 'WHERE a.amount > 1 GROUP')}").bound.stream
    )
    auth.push(AUTHORIZED)
    engine.step()
    engine.stop()
    engine, auth, settle = payments(make_engine, tmp_path)
    settle.push(SETTLED)
    engine.drain()
    assert finals(engine.query(first.name)) == EXPECTED
    assert [row["rows"] for row in engine.query(first.name).results().to_pylist()] == [1, 2]
    assert "combined pairs" in engine.explain()


OUTER_EXPECTED = {
    "LEFT JOIN": [(5.0, None, 2, None), (5.0, 1, 1, 5.0), (10.0, 1, 2, 5.0)],
    "RIGHT JOIN": [(5.0, None, 1, 1.0), (5.0, 1, 1, 5.0), (10.0, 1, 2, 5.0), (35.0, 2, 1, 7.0)],
    "FULL OUTER JOIN": [(5.0, None, 3, 1.0), (5.0, 1, 1, 5.0), (10.0, 1, 2, 5.0), (35.0, 2, 1, 7.0)],
}


@ON_BOTH
@pytest.mark.parametrize("form", OUTER_EXPECTED)
def test_outer_joins_continue_after_a_restart(make_engine: EngineFactory, tmp_path: Path, form: str) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    text = f"SELECT s.card, count(*) AS n, sum(s.amount) AS total FROM auth a {form} settle s ON {CLOSE} {WINDOW}"
    name = engine.register(f"{text} GROUP BY s.card").name
    auth.push(AUTHORIZED)
    engine.step()
    settle.push(SETTLED[:1])
    engine.step()
    engine.stop()
    engine, auth, settle = payments(make_engine, tmp_path)
    settle.push(SETTLED[1:])
    engine.drain()
    expected = [(end, card or 0, n, total or 0) for end, card, n, total in OUTER_EXPECTED[form]]
    names = ("card", "n", "total")
    shown = [
        ((row["window_end"] - at(0)) / timedelta(minutes=1), *(row[each] or 0 for each in names))
        for row in engine.query(name).results().to_pylist()
    ]
    assert sorted(shown) == sorted(expected)


def test_a_row_without_a_partner_is_returned_when_the_watermark_has_passed_the_bound(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path, slack="0 seconds")
    query = engine.register(f"SELECT count(*) AS n FROM auth a LEFT ANTI JOIN settle s ON {CLOSE} {WINDOW}")
    auth.push(rows((1, 1.0, 1), (2, 1.0, 14)))
    engine.step()
    settle.push(rows((9, 1.0, 14)))
    engine.step()
    assert (
        finals(query) == []
    )  # a settlement at 12:11 is too late for the row of 12:01, but not for one of 12:04
    assert [row["n"] for row in query.prod().to_pylist()] == [1]
    for feed in (auth, settle):
        feed.push(rows((3, 1.0, 15.5)))
        engine.step()
    assert finals(query) == [(5.0, 1)]
    assert "windows close 10 minutes after the streams have passed them" in engine.explain()


def test_queries_of_an_outer_join_can_read_different_columns(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    outer = f"FROM auth a LEFT JOIN settle s ON {CLOSE} {WINDOW}"
    first = engine.register(f"SELECT count(s.card) AS n {outer}")
    second = engine.register(f"SELECT sum(a.amount) AS total {outer}")
    assert first.bound.stream == second.bound.stream
    auth.push(AUTHORIZED)
    settle.push(SETTLED)
    engine.drain()
    assert finals(first) == [(5.0, 1), (10.0, 2)]
    assert finals(second) == [(5.0, 13.0), (10.0, 8.0)]


def test_rows_of_an_outer_join_after_both_streams_ended_are_not_matched_with_returned_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    query = engine.register(
        f"SELECT count(s.card) AS n, count(*) AS m FROM auth a LEFT JOIN settle s ON {CLOSE} {WINDOW}"
    )
    auth.push(rows((1, 1.0, 0)))
    engine.drain()
    assert finals(query) == [(5.0, 0, 1)]
    settle.push(rows((1, 1.0, 6)))
    auth.push(rows((1, 1.0, 6)))
    engine.drain()
    assert finals(query) == [(5.0, 0, 1), (10.0, 1, 1)]


def test_a_table_beside_an_outer_join(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    engine.table("cards", [{"card": 1, "bank": "North"}, {"card": 2, "bank": "South"}])
    query = engine.register(
        f"SELECT bank, count(*) AS n, count(s.card) AS m FROM auth a {WINDOW} LEFT JOIN settle s ON {CLOSE} "
        "JOIN cards c ON a.card = c.card GROUP BY bank"
    )
    auth.push(AUTHORIZED)
    settle.push(SETTLED)
    engine.drain()
    assert finals(query) == [(5.0, "North", 1, 1), (5.0, "South", 1, 0), (10.0, "North", 2, 2)]


OUTER_ON = "s.ts > a.ts - INTERVAL 90 seconds AND s.ts <= a.ts + INTERVAL 2 minutes AND a.amount < s.amount"
SPARK_FORMS = {
    "LEFT JOIN": ("a.card", "sum(s.amount)"),
    "RIGHT JOIN": ("s.card", "sum(a.amount)"),
    "FULL JOIN": ("coalesce(a.card, s.card)", "sum(s.amount)"),
    "LEFT SEMI JOIN": ("a.card", "sum(a.amount)"),
    "LEFT ANTI JOIN": ("a.card", "sum(a.amount)"),
}


def push_drawn_payments(dice: Random, engine: Any, auth: Any, settle: Any, session: Any) -> None:
    """Push random rows into both streams, in batches and to the end; Spark has them as views."""
    drawn = {
        name: rows(
            *(
                (dice.choice([1, 2, 3, None]), dice.choice([0.25, 0.5, 1.0, 2.0]), dice.randrange(3000) / 60)
                for _ in range(200)
            )
        )
        for name in ("auth", "settle")
    }
    for start in range(0, 200, 50):
        auth.push(drawn["auth"][start : start + 50])
        settle.push(drawn["settle"][start : start + 50])
        engine.step()
    engine.drain()
    for name, values in drawn.items():
        frame = session.createDataFrame([tuple(row.values()) for row in values], AUTH)
        frame.createOrReplaceTempView(name)


@pytest.mark.comparison
@on_spark("the answers are Spark's own")
def test_outer_joins_give_the_answers_of_spark(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    engine, auth, settle = payments(make_engine, tmp_path, slack="1 hour")
    queries = {
        form: engine.register(
            f"SELECT {key} AS card, count(*) AS n, {total} AS total FROM auth a {form} settle s ON a.card = s.card "
            f"AND {OUTER_ON} AND a.amount > 0.3 GROUP BY window(join_time, '6 minutes', '2 minutes'), {key}"
        )
        for form, (key, total) in SPARK_FORMS.items()
    }
    push_drawn_payments(dice, engine, auth, settle, make_engine.session)
    for form, (key, total) in SPARK_FORMS.items():
        time = "a.ts" if form.endswith(("SEMI JOIN", "ANTI JOIN")) else "greatest(a.ts, s.ts)"
        theirs = make_engine.session.sql(
            f"SELECT card, n, total, w.end FROM (SELECT window({time}, '6 minutes', '2 minutes') AS w, {key} AS card, "
            f"count(*) AS n, {total} AS total FROM auth a {form} settle s ON a.card = s.card AND {OUTER_ON} "
            "AND a.amount > 0.3 GROUP BY 1, 2)"
        ).toArrow()
        ours = queries[form].results().select(["card", "n", "total", "window_end"])
        shown = [
            sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)
            for table in (ours, theirs)
        ]
        assert shown[0] == shown[1] and len(ours) > 10, form


@pytest.mark.comparison
@on_spark("the answers are Spark's own")
def test_joins_give_the_answers_of_spark(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    engine, auth, settle = payments(make_engine, tmp_path, slack="1 hour")
    conditions = [
        "s.ts BETWEEN a.ts AND a.ts + INTERVAL 10 minutes",
        "s.ts > a.ts - INTERVAL 90 seconds AND s.ts <= a.ts + INTERVAL 1 minute AND a.amount < s.amount",
        "s.ts BETWEEN a.ts - INTERVAL 5 minutes AND a.ts - INTERVAL 1 minute",
    ]
    queries = [
        engine.register(
            f"SELECT a.card, count(*) AS n, sum(s.amount) AS total FROM auth a JOIN settle s ON a.card = s.card AND "
            f"{condition} WHERE a.amount > 0.5 GROUP BY window(join_time, '6 minutes', '2 minutes'), a.card"
        )
        for condition in conditions
    ]
    push_drawn_payments(dice, engine, auth, settle, make_engine.session)
    for condition, query in zip(conditions, queries, strict=True):
        theirs = make_engine.session.sql(
            "SELECT card, n, total, w.end FROM (SELECT window(greatest(a.ts, s.ts), '6 minutes', '2 minutes') AS w, "
            "a.card, count(*) AS n, sum(s.amount) AS total FROM auth a JOIN settle s "
            f"ON a.card = s.card AND {condition} WHERE a.amount > 0.5 GROUP BY 1, 2)"
        ).toArrow()
        ours = query.results().select(["card", "n", "total", "window_end"])
        shown = [
            sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
            for table in (ours, theirs)
        ]
        assert shown[0] == shown[1] and len(ours) > 10, condition


@ON_BOTH
def test_a_view_is_joined_like_its_stream(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, auth, settle = payments(make_engine, tmp_path)
    engine.view("large", "SELECT card AS c, amount * 2 AS twice, ts AS at FROM auth WHERE amount > 3")
    query = engine.register(
        "SELECT c, count(*) AS n, sum(twice) AS total FROM settle s JOIN large ON c = s.card "
        f"AND s.ts BETWEEN at AND at + INTERVAL 10 minutes {WINDOW} GROUP BY c"
    )
    by_hand = engine.register(
        "SELECT a.card AS c, count(*) AS n, sum(a.amount * 2) AS total FROM auth a JOIN settle s "
        f"ON {CLOSE} {WINDOW} WHERE a.amount > 3 GROUP BY a.card"
    )
    auth.push(AUTHORIZED)
    settle.push(SETTLED)
    engine.drain()
    assert finals(query) == finals(by_hand) == [(5.0, 1, 1, 10.0), (10.0, 1, 1, 10.0)]
    assert query.bound.stream == by_hand.bound.stream
