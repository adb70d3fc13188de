"""`column:path` reads JSON text: it is written with get_json_object(), and errors point at the user's text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.sql.trades_catalog import CATALOG, Rules, over_trades
from transom.errors import SQLError
from transom.sql import bind, bind_one
from transom.sql.binding.templates import cut
from transom.sql.syntax.spark_parser import parse_expression

START = datetime(2024, 1, 1, tzinfo=UTC)
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("symbol:user", "get_json_object(`symbol`, '$.user')"),
        ("symbol:user.name", "get_json_object(`symbol`, '$.user.name')"),
        ("T.Symbol:User.Name", "get_json_object(`symbol`, '$.User.Name')"),
        ("`symbol`:user", "get_json_object(`symbol`, '$.user')"),
        ("symbol:items[0].price", "get_json_object(`symbol`, '$.items[0].price')"),
        ("symbol:items[00][1]", "get_json_object(`symbol`, '$.items[0][1]')"),
        ("symbol:items[*].price", "get_json_object(`symbol`, '$.items[*].price')"),
        ("symbol:['user']", "get_json_object(`symbol`, '$.user')"),
        ("symbol:['first name'].x", "get_json_object(`symbol`, '$.first name.x')"),
        ('symbol:user["first name"]', "get_json_object(`symbol`, '$.user.first name')"),
        ("symbol:`first name`.`x`", "get_json_object(`symbol`, '$.first name.x')"),
        ("symbol:['a.b']['c[0]']", "get_json_object(`symbol`, \"$['a.b']['c[0]']\")"),
        ("symbol:[0]", "get_json_object(`symbol`, '$[0]')"),
        # keys that are words of SQL, or of Transom's clauses
        ("symbol:from.select.where", "get_json_object(`symbol`, '$.from.select.where')"),
        ("symbol:offset.emit.early", "get_json_object(`symbol`, '$.offset.emit.early')"),
        ("symbol:case", "get_json_object(`symbol`, '$.case')"),
        # what a path can follow
        ("spot.zone.name:a", "get_json_object(`spot`.`Zone`.`name`, '$.a')"),
        ("tags[0]:a.b", "get_json_object(`tags`[0], '$.a.b')"),
        ("upper(symbol):a", "get_json_object(upper(`symbol`), '$.a')"),
        ("(symbol):a", "get_json_object(`symbol`, '$.a')"),
        ("transform(tags, x -> x:a)", "transform(`tags`, `x` -> get_json_object(`x`, '$.a'))"),
        # what can follow a path
        ("symbol:a::double", "CAST(get_json_object(`symbol`, '$.a') AS DOUBLE)"),
        ("symbol:a.b[0]::int + 1", "CAST(get_json_object(`symbol`, '$.a.b[0]') AS INT) + 1"),
        ("-symbol:a * 2", "-get_json_object(`symbol`, '$.a') * 2"),
        ("symbol:a || symbol:b", "get_json_object(`symbol`, '$.a') || get_json_object(`symbol`, '$.b')"),
        ("CASE WHEN live THEN symbol:a ELSE symbol END",
         "CASE WHEN `live` THEN get_json_object(`symbol`, '$.a') ELSE `symbol` END"),
        # the colons of a type
        ("CAST(spot AS STRUCT<a:int,b:STRUCT<c:int>>).a + volume:b",
         "CAST(`spot` AS STRUCT<a: INT, b: STRUCT<c: INT>>).`a` + get_json_object(`volume`, '$.b')"),
    ],
)  # fmt: skip
def test_a_path_is_a_call(written: str, canonical: str) -> None:
    (call,) = over_trades(f"min({written})").calls
    assert call.args[0].sql == canonical


def test_the_interpreter_reads_paths_too() -> None:
    assert parse_expression("raw:a.b") == parse_expression("get_json_object(raw, '$.a.b')")


def test_a_colon_after_a_comparison_in_a_query_with_a_struct_type_is_a_parameter() -> None:
    text = f"SELECT min(CAST(spot AS STRUCT<a:int>)) FROM Trades {WINDOW} WHERE volume < 3 AND site = :a"
    with pytest.raises(SQLError) as caught:
        bind_one(text, CATALOG, Rules())
    assert caught.value.message.startswith("the parameter :a has no value")


@pytest.mark.parametrize(
    ("condition", "message", "place"),
    [
        ("symbl:a.b = 'x'", "unknown column symbl", "symbl"),
        ("symbol:a = 'x' AND prise > 3", "unknown column prise", "prise"),
        ("symbol: a = 'x'", "expected a path directly after :", ":"),
        ("symbol:1 = 'x'", "expected a path directly after :", ":"),
        ("symbol:[-1] = 'x'", "expected a path directly after :", ":"),
        ("symbol:[''] = 'x'", "'' can't be a key of a path", "''"),
        ("symbol:['*'] = 'x'", "'*' can't be a key of a path", "'*'"),
        ("symbol:[' a'] = 'x'", "' a' can't be a key of a path", "' a'"),
        ("symbol:a[\"it's\"] = 'x'", "\"it's\" can't be a key of a path", '"it\'s"'),
        ("symbol:['a\\\\b'] = 'x'", "'a\\\\b' can't be a key of a path", "'a\\\\b'"),
        ("symbol :a = 'x'", "the parameter :a has no value", ":a"),
    ],
)
def test_an_error_points_at_the_text(condition: str, message: str, place: str) -> None:
    text = f"SELECT count(*) FROM Trades {WINDOW} WHERE {condition}"
    with pytest.raises(SQLError) as caught:
        bind_one(text, CATALOG, Rules())
    assert message in caught.value.message
    assert caught.value.text == text
    assert text[caught.value.start : caught.value.end] == place


def test_queries_that_differ_in_a_path_are_different() -> None:
    texts = [
        f"SELECT max(symbol:items[{at}].price) FROM Trades {WINDOW} WHERE symbol:['{key}'] = 'x'"
        for at, key in ((0, "k"), (1, "k"), (0, "l"))
    ]
    assert len({cut(text).key for text in texts}) == 1  # they are candidates for one template
    named = {str(at): text for at, text in enumerate(texts)}
    together = list(bind(named, CATALOG, Rules()).values())
    assert together == [bind({name: text}, CATALOG, Rules())[name] for name, text in named.items()]
    assert together[0] != together[1]
    assert together[0] != together[2]


ROWS = [
    '{"user":{"name":"ann"},"items":[{"price":2.5}],"a.b":7}',
    "{'user':{'name':'ann'},'items':[{'price':4}]}",
    '{"user":{"name":"bob"},"items":[{"price":1}]}',
    '{"user":{},"items":[{"price":9}]}',
    '{"user":{"name":"ann"},"items":[]}',
    "no json",
    None,
]


def by_name(results: dict[str, list[object]], value: str) -> dict[object, object]:
    return dict(zip(results["who"], results[value], strict=True))


@ON_BOTH
def test_a_stream_of_json_texts_is_aggregated(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("events", "raw string, ts timestamp", time="ts")
    engine.view("parsed", "SELECT raw:user.name AS who, raw:['a.b']::int AS ab, ts FROM events")
    sums = engine.register(
        f"SELECT raw:user.name AS who, sum(raw:items[0].price::double) AS s FROM events {WINDOW} "
        "WHERE raw:items[0].price::double > :limit GROUP BY raw:user.name",
        parameters={"limit": 1},
    )
    seconds = [
        engine.register(f"SELECT count(raw:items[{at}].price) AS n FROM events {WINDOW}") for at in (0, 1)
    ]
    viewed = engine.register(f"SELECT who, count(*) AS n, max(ab) AS ab FROM parsed {WINDOW} GROUP BY who")
    feed.push([{"raw": raw, "ts": START} for raw in ROWS])
    feed.push([{"raw": None, "ts": START + timedelta(hours=1)}])
    engine.step()
    engine.step()
    assert by_name(sums.results().to_pydict(), "s") == {"ann": 6.5, None: 9.0}
    assert [query.results().to_pydict()["n"][0] for query in seconds] == [4, 0]
    assert by_name(viewed.results().to_pydict(), "n") == {"ann": 3, "bob": 1, None: 3}
    assert by_name(viewed.results().to_pydict(), "ab") == {"ann": 7, "bob": None, None: None}


def test_without_spark_a_wildcard_and_another_type_are_errors() -> None:
    engine = EngineFactory("local", None)()
    engine.feed("events", "raw string, number int, ts timestamp", time="ts")
    for path, message in (
        ("raw:items[*].price", "is not supported without Spark"),
        ("number:a", "get_json_object() and value:path read JSON text, not int32"),
    ):
        with pytest.raises(SQLError) as caught:
            engine.check(f"SELECT count(*) AS n FROM events {WINDOW} WHERE {path} = '3'")
        assert message in caught.value.message
        assert path.startswith(caught.value.text[caught.value.start : caught.value.end])
