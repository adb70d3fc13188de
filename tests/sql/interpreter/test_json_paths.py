"""`get_json_object` without Spark: Spark's values for valid, lenient and broken JSON texts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.sql.interpreter.hostile_values import JSON_TEXTS
from transom.sql.interpreter.json_paths import json_value, path_steps

PATHS = ["$.a", "$.b", "$.a[0]", "$.a[1]", "$.a.b", "$.a.c", "$.a.b[2]", "$[0]", "$[0].a", "$[1].a", "$.a b",
         "$['c.d']", "$.A", "$.a[0].b[1].c"]  # fmt: skip
SEEDS = [
    '{"a":[1,2.50,"x\\u00e9\'y",{"b":null,"a":true}],"b":{"a":"q"}}',
    "{'a':{'b':[-0.0,1e5,false]},\"b\":'z'}",
    '[{"a":1},{"a":[{"b":"\\ud83d\\ude00"}]}]',
]
CHARACTERS = "{}[]\",:'\\0129.eE+- tfnu\n\t\x00a/😀\xa0"


def mutated_texts(count: int, seed: int) -> list[str]:
    """JSON texts with a few characters removed, added or replaced."""
    chance, texts = random.Random(seed), []
    for _ in range(count):
        text = list(chance.choice(SEEDS))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            kept = chance.randrange(2)
            text[at : at + kept] = chance.choice(["", *CHARACTERS])
        texts.append("".join(text))
    return texts


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ('{"a":"b"}', "$.a", "b"),
        ('{"a":1.50}', "$.a", "1.5"),
        ('{"a":1.0}', "$.a", "1.0"),
        ('{"a":1e3}', "$.a", "1000.0"),
        ('{"a":-0}', "$.a", "0"),
        ('{"a":1e400}', "$.a", '"Infinity"'),
        ('{"a":12345678901234567890123}', "$.a", "12345678901234567890123"),
        ('{"a":true}', "$.a", "true"),
        ('{"a":null}', "$.a", None),
        ('{"a":[null]}', "$.a[0]", "null"),
        ('{"a":null,"a":1,"a":2}', "$.a", "1"),
        ('{"a":{"b":1},"a":{"c":2}}', "$.a.c", "2"),
        ('{ "a" : [ 1 , { "b" : null } ] }', "$.a", '[1,{"b":null}]'),
        ("{'a':'it\\'s'}", "$.a", "it's"),
        ("{'a':['x\"y']}", "$.a", '["x\\"y"]'),
        ('{"a":["\t\x01😀"]}', "$.a", '["\\t\\u0001\\uD83D\\uDE00"]'),
        ('{"a":"\\ud83d\\ude00"}', "$.a", "😀"),
        ('{"a":"\\ud800"}', "$.a", None),
        ('{"a":["\\ud800"]}', "$.a", '["\\uD800"]'),
        ('{"a":1} and more', "$.a", "1"),
        ('{"a":1,}', "$.a", None),
        ('{"a":1', "$.a", None),
        ('{"b":01,"a":1}', "$.a", None),
        ('{"A":1}', "$.a", None),
        ("[1]", "$.a", None),
        ('{"a":1}', "$[0]", None),
        ("7", "$.a", None),
    ],
)
def test_a_value_is_printed_as_spark_prints_it(text: str, path: str, value: str | None) -> None:
    steps = path_steps(path)
    assert steps
    assert json_value(text, steps) == value


@pytest.mark.parametrize(
    "path",
    ["a", "$a", "$.", "$..a", "$. a", "$[' a']", "$[-1]", "$[*]", "$.*", "$['*']", "$['']", "$.a[*].b", "$[0]a",
     "$[99999999999]", "$['a?']", "$.a[", ""],
)  # fmt: skip
def test_other_paths_are_left_to_spark(path: str) -> None:
    assert path_steps(path) is None


@pytest.mark.spark
@pytest.mark.comparison
def test_spark_reads_the_same_from_broken_texts(spark_without_ansi: Any, seed: int) -> None:
    texts = JSON_TEXTS + mutated_texts(3_000, seed)
    frame = spark_without_ansi.createDataFrame(list(enumerate(texts)), "number int, text string").coalesce(1)
    calls = [f'get_json_object(text, "{path}") AS c{at}' for at, path in enumerate(PATHS)]
    rows = frame.selectExpr("number", *calls).orderBy("number").collect()
    steps = [path_steps(path) for path in PATHS]
    for text, row in zip(texts, rows, strict=True):
        ours = [json_value(text, each) for each in steps if each]
        assert ours == list(row)[1:], f"seed {seed}: {text[:200]!r}"
