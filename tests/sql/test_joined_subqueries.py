"""Subqueries, names of WITH and views that are joined: the queries that one would write by hand."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.results.pure_batches import SCALARS
from transom.errors import SQLError
from transom.sql import Catalog, Query, Relation
from transom.sql.binding.bind import bind_one

TIME = pa.timestamp("us", "UTC")
STREAMS = {
    "a": Relation("a", {"k": pa.int64(), "v": pa.int64(), "u": pa.int64(), "ts": TIME}, "ts"),
    "b": Relation("b", {"k": pa.int64(), "v": pa.int64(), "w": pa.int64(), "ts": TIME}, "ts"),
    "e": Relation("e", {"k": pa.int64(), "x": pa.list_(pa.int64()), "ts": TIME}, "ts"),
}
TABLES = {"t": Relation("t", {"k": pa.int64(), "lo": pa.int64(), "hi": pa.int64(), "v": pa.int64()})}
VIEWS = {
    "va": "SELECT k, v * 2 AS vv, ts AS at, u FROM a WHERE v > 3",
    "both": "SELECT k, ts FROM a UNION ALL SELECT k, ts FROM b",
}
CATALOG = Catalog(STREAMS, TABLES, views=VIEWS)
WINDOW = "[RANGE 5 minutes SLIDE 5 minutes]"
CLOSE = "BETWEEN a.ts AND a.ts + INTERVAL 1 minute"


def bound(text: str) -> Query:
    return bind_one(text, CATALOG, SCALARS)


ALIKE = {
    "a view and a stream": (
        f"SELECT sum(vv) AS s FROM va x JOIN b ON x.k = b.k AND b.ts BETWEEN x.at AND x.at + INTERVAL 1 minute {WINDOW}",
        f"SELECT sum(a.v * 2) AS s FROM a JOIN b ON a.k = b.k AND b.ts {CLOSE} {WINDOW} WHERE a.v > 3",
    ),
    "a stream and a view": (
        f"SELECT sum(vv) AS s FROM b JOIN va x ON x.k = b.k AND b.ts BETWEEN x.at AND x.at + INTERVAL 1 minute {WINDOW} WHERE w > 2",
        f"SELECT sum(a.v * 2) AS s FROM a JOIN b ON a.k = b.k AND b.ts {CLOSE} {WINDOW} WHERE b.w > 2 AND a.v > 3",
    ),
    "a subquery with a key that is computed": (
        f"SELECT sum(p) AS s FROM b JOIN (SELECT k + 1 AS k, v AS p, ts FROM a WHERE v < 7) x ON x.k = b.k AND b.ts BETWEEN x.ts AND x.ts + INTERVAL 1 minute {WINDOW}",
        f"SELECT sum(a.v) AS s FROM b JOIN a ON (a.k + 1) = b.k AND b.ts {CLOSE} {WINDOW} WHERE a.v < 7",
    ),
    "names of WITH on both sides": (
        f"WITH x AS (SELECT k, ts FROM a WHERE v > 2), y AS (SELECT k AS v, w, ts FROM b) SELECT sum(w) AS s FROM x JOIN y ON x.k = v AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 1 minute {WINDOW}",
        f"SELECT sum(b.w) AS s FROM a JOIN b ON a.k = b.k AND b.ts {CLOSE} {WINDOW} WHERE a.v > 2",
    ),
    "USING": (
        f"SELECT k, sum(v) AS s FROM b JOIN va USING (k) {WINDOW} WHERE b.ts BETWEEN at AND at + INTERVAL 1 minute GROUP BY k",
        f"SELECT b.k, sum(b.v) AS s FROM a JOIN b ON a.k = b.k AND b.ts {CLOSE} {WINDOW} WHERE a.v > 3 GROUP BY b.k",
    ),
    "a view that is joined with itself": (
        f"SELECT count(*) AS n FROM va x JOIN va y ON x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 1 minute {WINDOW}",
        f"SELECT count(*) AS n FROM a x JOIN a y ON x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 1 minute {WINDOW} WHERE x.v > 3 AND y.v > 3",
    ),
    "a subquery of a static table": (
        f"SELECT sum(low) AS s FROM a {WINDOW} JOIN (SELECT k, lo * 2 AS low FROM t WHERE lo < 9) z ON a.k = z.k",
        f"SELECT sum(z.lo * 2) AS s FROM a {WINDOW} JOIN t z ON a.k = z.k WHERE z.lo < 9",
    ),
    "a view and a table with USING": (
        f"SELECT sum(vv) AS s FROM va {WINDOW} JOIN t USING (k)",
        f"SELECT sum(a.v * 2) AS s FROM a {WINDOW} JOIN t ON t.k = a.k WHERE a.v > 3",
    ),
    "DISTINCT in a search": (
        f"SELECT count(*) AS n FROM a {WINDOW} WHERE u IN (SELECT DISTINCT lo FROM t) AND EXISTS (SELECT DISTINCT hi FROM t WHERE t.k = a.k)",
        f"SELECT count(*) AS n FROM a {WINDOW} WHERE u IN (SELECT lo FROM t) AND EXISTS (SELECT 1 FROM t WHERE t.k = a.k)",
    ),
    "a searched table with columns of the view's names": (
        f"SELECT count(*) AS n FROM va {WINDOW} WHERE u IN (SELECT lo FROM t WHERE k > 1)",
        f"SELECT count(*) AS n FROM a {WINDOW} WHERE v > 3 AND u IN (SELECT lo FROM t WHERE t.k > 1)",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_a_joined_subquery_is_inlined(case: str) -> None:
    inlined, by_hand = (bound(text) for text in ALIKE[case])
    texts = [
        [scalar.sql.replace("(", "").replace(")", "") for scalar in query.scalars()]
        for query in (inlined, by_hand)
    ]
    assert sorted(texts[0]) == sorted(texts[1])
    for field in ("stream", "clock", "window", "joins", "derived"):
        assert getattr(inlined, field) == getattr(by_hand, field)
    one, other = inlined.stream_join, by_hand.stream_join
    if one is not None and other is not None:
        assert [side.keys for side in one.sides] == [side.keys for side in other.sides]
        unfiltered = [replace(join, first=replace(join.first, filters=None), second=replace(join.second, filters=None)) for join in (one, other)]  # fmt: skip
        assert unfiltered[0] == unfiltered[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"SELECT sum(k) AS s FROM b JOIN va x ON x.k = b.k AND b.ts BETWEEN x.at AND x.at + INTERVAL 1 minute {WINDOW}", "k is ambiguous: x.k or b.k"),
        (f"SELECT sum(x.v) AS s FROM b JOIN va x ON x.k = b.k AND b.ts BETWEEN x.at AND x.at + INTERVAL 1 minute {WINDOW}", "unknown column v"),
        (f"SELECT count(*) AS n FROM b JOIN (SELECT k FROM a) x ON x.k = b.k AND b.ts BETWEEN x.ts AND x.ts {WINDOW}", "unknown column ts"),
        (f"SELECT count(*) AS n FROM b LEFT JOIN va x ON x.k = b.k AND b.ts = x.at {WINDOW}", "a view is joined by an inner JOIN only"),
        (f"SELECT count(*) AS n FROM a {WINDOW} LEFT JOIN (SELECT k FROM t) z ON a.k = z.k", "a subquery is joined by an inner JOIN only"),
        (f"SELECT count(*) AS n FROM b JOIN both x ON x.k = b.k AND b.ts = x.ts {WINDOW}", "a view with UNION ALL or explode can't be joined"),
        (f"SELECT count(*) AS n FROM both x JOIN b ON x.k = b.k AND b.ts = x.ts {WINDOW}", "the result of UNION ALL or explode; join the streams themselves"),
        (f"SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k AND b.ts = a.ts {WINDOW} GROUP BY ROLLUP(a.k)", "a join of two streams has no GROUPING SETS"),
        (f"SELECT count(*) AS n FROM va JOIN b USING (w) {WINDOW}", "no relation before b has the column w of USING"),
        (f"SELECT count(*) AS n FROM b JOIN (SELECT count(*) AS c FROM a) x ON x.c = b.k {WINDOW}", "count\\(\\) is not supported in a subquery"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(SQLError, match=message):
        bound(text)
