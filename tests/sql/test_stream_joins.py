"""Joins of two streams: which conditions are keys and bounds, which queries share a join, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.results.pure_batches import SCALARS
from transom.errors import SQLError
from transom.sql import Catalog, Query, Relation, relation_of
from transom.sql.binding.bind import bind, bind_one
from transom.sql.query import StreamJoin

TIME = pa.timestamp("us", "UTC")
AUTH = {"card": pa.int64(), "name": pa.string(), "amount": pa.float64(), "ts": TIME, "seq": pa.int64()}
SETTLE = {"card": pa.int32(), "code": pa.string(), "amount": pa.float64(), "at": TIME}
STREAMS = {
    "auth": Relation("auth", AUTH, "ts"),
    "settle": Relation("settle", SETTLE, "at"),
    "ticks": Relation("ticks", {"card": pa.int64(), "seq": pa.int64()}, "seq"),
    "local_times": Relation("local_times", {"card": pa.int64(), "ts": pa.timestamp("us")}, "ts"),
}
TABLES = {"cards": Relation("cards", {"card": pa.int64(), "bank": pa.string()})}
WINDOW = "[RANGE 5 minutes SLIDE 1 minute]"
MINUTE = 60_000_000


def catalog() -> Catalog:
    plain = Catalog(STREAMS, TABLES)
    counts = bind_one(f"SELECT count(*) AS n FROM auth {WINDOW}", plain, SCALARS)
    return Catalog({**STREAMS, "counts": relation_of("counts", counts)}, TABLES)


def joined(condition: str, streams: str = "auth a JOIN settle s", window: str = WINDOW) -> StreamJoin:
    text = f"SELECT count(*) AS n FROM {streams} ON {condition} {window}"
    found = bind_one(text, catalog(), SCALARS).stream_join
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("condition", "bound"),
    [
        ("s.at BETWEEN a.ts AND a.ts + INTERVAL 10 minutes", (0, 10 * MINUTE)),
        ("s.at BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts", (-MINUTE, 0)),
        ("a.ts BETWEEN s.at - INTERVAL 1 minute AND s.at + INTERVAL 1 hour", (-60 * MINUTE, MINUTE)),
        ("s.at >= a.ts AND s.at < a.ts + INTERVAL 1 minute", (0, MINUTE - 1)),
        ("s.at - a.ts <= INTERVAL 1 minute AND a.ts < s.at", (1, MINUTE)),
        ("INTERVAL 1 minute >= s.at - a.ts AND (s.at - INTERVAL 1 second > a.ts)", (1_000_001, MINUTE)),
        ("abs(s.at - a.ts) <= INTERVAL 10 seconds", (-10_000_000, 10_000_000)),
        ("INTERVAL 10 seconds > abs(a.ts - s.at)", (-9_999_999, 9_999_999)),
        ("a.ts = s.at", (0, 0)),
        ("s.at BETWEEN a.ts AND a.ts + INTERVAL 1 hour AND s.at <= a.ts + INTERVAL 1 minute", (0, MINUTE)),
    ],
)
def test_time_bounds(condition: str, bound: tuple[int, int]) -> None:
    found = joined(f"a.card = s.card AND {condition}")
    assert (found.low, found.high) == bound


def test_a_bound_of_integer_clocks() -> None:
    condition = "a.card = b.card AND b.seq BETWEEN a.seq - 3 AND a.seq + 10"
    found = joined(condition, "ticks a JOIN ticks b", "[RANGE 5 SLIDE 1]")
    assert (found.low, found.high) in ((-3, 10), (-10, 3))


BOUND = "s.at BETWEEN a.ts AND a.ts + INTERVAL 10 minutes"
PLAIN = f"SELECT sum(s.amount) AS n FROM auth a JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}"
ALIKE = {
    "the other stream first": f"SELECT count(*) AS n FROM settle s JOIN auth a ON {BOUND} AND s.card = a.card {WINDOW}",
    "a comma": f"SELECT count(*) AS n FROM auth a {WINDOW}, settle s WHERE a.card = s.card AND {BOUND}",
    "USING": f"SELECT count(*) AS n FROM auth a JOIN settle s USING (card) {WINDOW} WHERE {BOUND}",
    "other aliases": "SELECT count(*) AS n FROM auth AS x JOIN settle AS y "
    f"ON x.card = y.card AND y.at BETWEEN x.ts AND x.ts + INTERVAL 10 minutes {WINDOW}",
    "the bound in other words": PLAIN.replace(BOUND, "s.at >= a.ts AND s.at - a.ts <= INTERVAL 600 seconds"),
    "another window, WHERE and SELECT list": "SELECT max(a.amount) AS m, a.name FROM auth a JOIN settle s "
    f"ON a.card = s.card AND {BOUND} WHERE a.amount > s.amount AND s.code = 'x' "
    "GROUP BY window(join_time, '1 hour'), a.name",
    "an equality twice": PLAIN.replace(WINDOW, f"{WINDOW} WHERE a.card = s.card"),
}  # fmt: skip


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_queries_that_share_a_join(text: str) -> None:
    first, other = (bind_one(each, catalog(), SCALARS).over_pairs for each in (PLAIN, text))
    assert first.stream == other.stream
    assert first.clock == other.clock


OUTER = f"SELECT sum(s.amount) AS n FROM auth a LEFT JOIN settle s ON a.card = s.card AND {BOUND}"
OUTER_ALIKE = {
    "RIGHT JOIN from the other stream": f"SELECT count(*) AS n FROM settle s RIGHT OUTER JOIN auth a "
    f"ON {BOUND} AND s.card = a.card {WINDOW}",
    "another WHERE": f"{OUTER} {WINDOW} WHERE a.amount > s.amount AND a.seq = 1",
    "other columns": f"{OUTER} {WINDOW} GROUP BY a.name".replace("s.amount", "a.amount"),
}
OUTER_OTHERS = {
    "an inner join": PLAIN,
    "a full join": f"{OUTER.replace('LEFT', 'FULL')} {WINDOW}",
    "an anti join": f"SELECT count(*) AS n FROM auth a ANTI JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}",
    "a condition over both streams": f"{OUTER} AND a.amount < s.amount {WINDOW}",
    "a condition over one stream": f"{OUTER} AND s.amount > 1 {WINDOW}",
    "another constant": f"{OUTER} AND s.amount > 2 {WINDOW}",
}


@pytest.mark.parametrize("text", OUTER_ALIKE.values(), ids=OUTER_ALIKE)
def test_queries_that_share_an_outer_join(text: str) -> None:
    assert (
        bind_one(f"{OUTER} {WINDOW}", catalog(), SCALARS).stream == bind_one(text, catalog(), SCALARS).stream
    )


def test_outer_joins_that_differ_in_what_matches_are_different_streams() -> None:
    bound = bind({"outer": f"{OUTER} {WINDOW}", **OUTER_OTHERS}, catalog(), SCALARS)
    streams = [query.stream for query in bound.values() if isinstance(query, Query)]
    assert len(set(streams)) == len(bound)


def test_conditions_of_where_filter_only_the_preserved_stream_before_an_outer_join() -> None:
    found = bind_one(
        f"{OUTER} AND s.code = 'y' {WINDOW} WHERE a.amount > 1 AND s.code = 'x'", catalog(), SCALARS
    )
    assert found.stream_join is not None
    first, second = found.stream_join.sides
    assert (first.filters, second.filters) == ({"(`amount` > 1)"}, None)
    assert (first.condition, second.condition) == (None, "(`code` = 'y')")


COMBINED = {
    "a sum": PLAIN,
    "by a key": PLAIN.replace("sum(", "a.card, avg(") + " GROUP BY a.card",
    "by the key of the other stream": PLAIN.replace("sum(", "s.card, count(") + " GROUP BY s.card",
    "of expressions": PLAIN.replace("sum(s.amount)", "max(s.amount * 2) - min(a.amount + a.seq)"),
    "with HAVING, LAG and LIMIT": PLAIN.replace(
        "sum(s.amount) AS n", "a.card, count(*) AS n, LAG(n) OVER WINDOWS AS m"
    )
    + " "
    "GROUP BY a.card HAVING n > 1 ORDER BY n LIMIT 3",
}
NOT_COMBINED = {
    "values of both streams": PLAIN.replace("s.amount", "s.amount * a.amount"),
    "another group": PLAIN + " GROUP BY a.name",
    "WHERE": PLAIN + " WHERE a.amount > 1",
    "FILTER": PLAIN.replace("sum(s.amount)", "sum(s.amount) FILTER (WHERE s.amount > 1)"),
    "another aggregate": PLAIN.replace("sum(", "stddev("),
    "distinct values": PLAIN.replace("sum(", "count(DISTINCT "),
    "texts": PLAIN.replace("sum(s.amount)", "max(s.code)"),
    "the time of pairs": PLAIN.replace("sum(s.amount)", "max(join_time)"),
    "EMIT EMPTY": PLAIN + " EMIT EMPTY",
    "a table": PLAIN + " JOIN cards c ON a.card = c.card",
}


@pytest.mark.parametrize("text", COMBINED.values(), ids=COMBINED)
def test_queries_that_need_no_pairs(text: str) -> None:
    query = bind_one(text, catalog(), SCALARS)
    assert query.pairs_query is not None and query.stream_join is not None
    assert query.stream == f"{query.over_pairs.stream} combined"
    assert [call.type for call in query.calls] == [call.type for call in query.over_pairs.calls]


@pytest.mark.parametrize("text", NOT_COMBINED.values(), ids=NOT_COMBINED)
def test_queries_that_need_pairs(text: str) -> None:
    assert bind_one(text, catalog(), SCALARS).pairs_query is None


def test_only_what_queries_read_is_kept() -> None:
    found = bind_one(PLAIN, catalog(), SCALARS).over_pairs.stream_join
    assert found is not None
    assert [[name for name, _ in side.columns] for side in found.sides] == [[], ["amount"]]
    assert [key.sql for side in found.sides for key in side.keys] == ["`card`", "CAST(`card` AS BIGINT)"]


def test_rows_are_filtered_by_the_constants_of_each_query() -> None:
    texts = {
        str(limit): f"{PLAIN} WHERE a.amount > {limit} AND s.code = 'x' AND a.seq < s.card"
        for limit in range(3)
    }
    for limit, query in bind(texts, catalog(), SCALARS).items():
        assert isinstance(query, Query) and query.stream_join is not None
        first, second = query.stream_join.sides
        assert first.filters == {f"(`amount` > {limit})"}
        assert second.filters == {"(`code` = 'x')"}


def test_a_query_reads_the_streams_that_it_joins() -> None:
    assert bind_one(PLAIN, catalog(), SCALARS).streams == ("auth", "settle")


COUNT = "SELECT count(*) AS n FROM"
FROM = f"{COUNT} auth a JOIN settle s ON"
REFUSED = {
    f"{FROM} a.card = s.card {WINDOW}": "a lower and an upper limit; for example s.at BETWEEN a.ts",
    f"{FROM} a.card = s.card AND s.at > a.ts {WINDOW}": "needs a time bound",
    f"{FROM} a.card = s.card AND s.at BETWEEN a.ts AND a.ts + INTERVAL 1 month {WINDOW}": "month",
    f"{FROM} {BOUND} {WINDOW}": "no equality links a and s; for example a.card = s.card",
    f"{FROM} a.crd = s.card AND {BOUND} {WINDOW}": "unknown column crd",
    f"{FROM} a.card = s.card AND s.at BETWEEN a.ts AND a.ts - INTERVAL 1 second {WINDOW}": "bound is empty",
    f"{FROM} a.card = s.card AND {BOUND}": "the query has no window",
    f"{FROM} a.card = s.card AND {BOUND} [RANGE 5 minutes]": "needs SLIDE",
    f"{FROM} a.card = s.card AND {BOUND} [SESSION 5 minutes]": "session windows over a join",
    f"{FROM} a.card = s.card AND {BOUND} GROUP BY session_window(join_time, '1 hour')": "session windows over a join",
    f"{FROM} a.card = s.card AND {BOUND} [ROWS 5 SLIDE 1]": "use RANGE instead of ROWS",
    f"{FROM} a.card = s.card AND {BOUND} [RANGE 5 SLIDE 1 WATTR seq]": "unknown column seq",
    f"{FROM} a.card = s.card AND {BOUND} GROUP BY window(a.ts, '1 hour')": "are along join_time",
    f"{FROM} a.card = s.card AND {BOUND} {WINDOW} ON OVERLOAD PREFER desc amount": "ON OVERLOAD",
    f"{COUNT} auth a LEFT JOIN settle s ON a.card = s.card {WINDOW} WHERE {BOUND}": "needs a time bound",
    f"{COUNT} auth a LEFT JOIN settle s ON {BOUND} {WINDOW} WHERE a.card = s.card": "no equality links",
    f"{COUNT} auth a FULL JOIN settle s USING (card) {WINDOW} WHERE {BOUND}": "needs ON: USING has no place",
    f"{COUNT} auth a LEFT JOIN settle s ON a.card = s.card AND {BOUND} AND a.amount {WINDOW}": "must be true or false",
    f"{COUNT} auth a LEFT JOIN settle s ON a.card = s.card AND {BOUND} AND a.x > 1 {WINDOW}": "unknown column x",
    f"{COUNT} auth a JOIN cards c ON a.card = c.card LEFT JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}": (
        "the join of two streams comes first"
    ),
    f"{COUNT} auth a LEFT JOIN settle s ON a.card = s.card AND {BOUND} AND c.bank = 'x' "
    f"JOIN cards c ON a.card = c.card {WINDOW}": "ON of a join of two streams reads these streams only",
    f"SELECT sum(s.amount) AS n FROM auth a SEMI JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}": (
        "can't be read here"
    ),
    f"{COUNT} (SELECT * FROM auth WHERE amount > 1) a FULL JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}": (
        "FULL JOIN needs the name of a stream"
    ),
    f"{COUNT} auth a LEFT JOIN (SELECT * FROM settle) s ON a.card = s.card AND {BOUND} {WINDOW}": "inner JOIN only",
    f"{FROM} a.card = s.card AND {BOUND} JOIN auth c ON c.card = a.card {WINDOW}": "two streams, not more",
    f"{COUNT} auth a JOIN ticks s ON a.card = s.card AND a.ts = s.seq {WINDOW}": "different clocks",
    f"{COUNT} auth a JOIN local_times s ON a.card = s.card AND a.ts = s.ts {WINDOW}": "time zone",
    f"{COUNT} auth a JOIN counts s ON a.card = s.n AND a.ts = s.window_time {WINDOW}": "it is a query",
    f"{COUNT} (SELECT card FROM auth) a JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW}": "unknown column ts",
    f"{COUNT} auth a JOIN settle s ON a.card = s.card AND {BOUND} {WINDOW} GROUP BY card": "ambiguous",
    f"{COUNT} auth a JOIN auth ON a.card = auth.card AND a.ts = auth.ts {WINDOW} WHERE b.card = 1": "unknown name b",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(SQLError, match=message):
        bind_one(text, catalog(), SCALARS)
