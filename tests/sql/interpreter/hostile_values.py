"""Values at the limits of every type, and expressions of every function and operator over columns of such values."""

from __future__ import annotations

import itertools
import math
import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from datasketches import hll_sketch, tgt_hll_type
from sqlglot import exp

from transom.sql.interpreter.scalars import InterpretedScalars

NAN, INF = math.nan, math.inf
FIRST_MICRO, LAST_MICRO = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
MANY_NINES = Decimal("9" * 38)


def sketch(count: int) -> bytes:
    """What `hll_sketch_agg` gives for the numbers below count."""
    numbers = hll_sketch(12, tgt_hll_type.HLL_8)
    for number in range(count):
        numbers.update(number)
    return numbers.serialize_updatable()


JSON_TEXTS = [
    "", "no json", "null", "7", '"a"', "{}", "[]", '{"a":1}', '{"a":1} x', '{"a":1}}', '{"a":1', '{"a":1,}', '[1,2,]',
    '[,1]', '{a:1}', "{'a':'b'}", '{"a":"it\'s"}', "{'a':['x\"y']}", "{'a':'x\\'y'}", '{"a":"x\\qy"}',
    '{"a":"\\u00e9"}',
    '{"a":"\\ud83d\\ude00"}', '{"a":["\\ud83d\\ude00😀"]}', '{"a":"\\ud800"}', '{"a":["\\ud800"]}',
    '{"a":"\t\x01\x7f"}', '{"a":["\t\n\x01\x1f\x7f/\\/é\\"\\\\"]}', '{"a":null,"a":1}', '{"a":1,"a":2}',
    '{"a":{"b":1},"a":{"c":2}}', '{"a":[],"a":[5]}', "[null]", '[{"a":"x"},{"a":2}]',
    '{ "a" : [ 1 , { "x" : null } ] }',
    '{"a":{"b":[true,false,null]}}', '{"a b":1,"c.d":2,"":3,"A":4}', '{"a":NaN}', '{"a":01}', '{"a":.5}', '{"a":1.e3}',
    '{"a":-0}', '{"a":[-0,-0.0,1.0,1.10,1e2,1e-5,1E7]}', '{"a":1e400}', '{"a":[-1e400]}', '{"a":1e-400}',
    '{"a":12345678901234567890123}', '{"a":0.1234567890123456789}', '{"a":' + "1" * 1001 + "}",
    '{"a":0.' + "1" * 999 + "}", '{"a":0.' + "1" * 1000 + "}", '{"a":-' + "1" * 1000 + "}", '{"a":-' + "1" * 1001 + "}",
    '{"a":1.' + "1" * 995 + "e100}", '{"a":1.' + "1" * 996 + "e100}", '{"a":1.' + "1" * 996 + "e-10}",
    '{"a":' + "[" * 999 + "]" * 999 + "}", '{"a":' + "[" * 1000 + "]" * 1000 + "}", '{"a":' + "[" * 99 + "}",
    '{"' + "k" * 50_000 + '":1,"a":2}', '{"' + "k" * 50_001 + '":1,"a":2}', '\ufeff{"a":1}', '{"a":1\xa0}',
    '{"a":trué}',
    '{"a":"\x00\u2028"}', '{"\\u0061":5}', ' \n\t{"a":[{"b":[1,{"c":"d"}]}]}',
]  # fmt: skip

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "y": (pa.int8(), [0, 1, -1, 7, 127, -128]),
    "h": (pa.int16(), [0, 1, -1, 25, 2**15 - 1, -(2**15)]),
    "i": (pa.int32(), [0, 1, -1, 2, -7, 25, 99, 2**31 - 1, -(2**31), 2**24 + 1]),
    "l": (pa.int64(), [0, 1, -1, 3, 2**53 + 1, 2**32 + 5, 10**18, 2**63 - 1, -(2**63), 1_700_000_000]),
    "f": (pa.float32(), [0.0, -0.0, 0.5, 0.1, -2.5, NAN, INF, -INF, 3.4028234663852886e38, 1e-45, 16777216.0]),
    "d": (pa.float64(), [0.0, -0.0, 1.5, 2.5, -2.5, 0.1, 1.005, NAN, INF, -INF, 1e300, -1e300, 5e-324,
                         9.223372036854775e18, 9.3e18, 2147483647.5, 1e20, 123456.789, 0.49999999999999994]),
    "m": (pa.decimal128(10, 2), [Decimal(v) for v in ("0.00", "1.25", "-1.25", "2.00", "0.01", "99999999.99",
                                                      "-99999999.99", "-0.50")]),
    "w": (pa.decimal128(38, 10), [Decimal(v) for v in ("0", "1.5", "-1.5", "9" * 28 + "." + "9" * 10,
                                                       "-" + "9" * 28 + "." + "9" * 10, "0.0000000001")]),
    "v": (pa.decimal128(38, 0), [Decimal(0), Decimal(3), MANY_NINES, MANY_NINES.copy_negate(),
                                 Decimal(2**63), Decimal(-(2**64))]),
    "s": (pa.string(), ["", "a", "Abc", "banana", " 42 ", "3000000000", "-1e2", "NaN", "-inf", "naïve ß", "abc\ndef",
                        "2020-02-29", "2020-02-29 13:14:15.123456", "0001-01-01", "9999-12-31 23:59:59", "true",
                        "日本語",
                        "1.5", "a.b.c", "10%", "x" * 500, "😀 smile", "a_c", "b\\c", " tab\t", "99999999999999999999"]),
    "u": (pa.string(), ["", "a", "an", "ß", ".", "%", " ", "本", "banana", "b"]),
    "b": (pa.bool_(), [True, False]),
    "t": (pa.timestamp("us", "UTC"), [0, -1, 1, 1_711_846_800_000_000, 951_782_400_000_001, -86_400_000_001,
                                      FIRST_MICRO, LAST_MICRO]),
    "n": (pa.timestamp("us"), [0, -1, 1_711_852_200_000_001, FIRST_MICRO, LAST_MICRO]),
    "day": (pa.date32(), [date(1970, 1, 1), date(1969, 12, 31), date(2020, 2, 29), date(1900, 2, 28), date(2021, 1, 3),
                          date(1, 1, 1), date(9999, 12, 31)]),
    "a": (pa.list_(pa.int32()), [[], [1, 2, None], [5], [None], [2, 7, 1]]),
    "words": (pa.list_(pa.string()), [[], ["a", None], ["b", "c"]]),
    "k": (pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], [("b", None), ("a", 3)], [("ß", 4)]]),
    "p": (pa.struct([("x", pa.int32()), ("Y", pa.string())]), [{"x": 1, "Y": "a"}, {"x": None, "Y": None}]),
    "g": (pa.binary(), [sketch(0), sketch(1), sketch(40), sketch(5000)]),
    "j": (pa.string(), JSON_TEXTS),
}  # fmt: skip
TYPES = {name: type for name, (type, _) in COLUMNS.items()}

KINDS = {  # the columns that stand for a kind of argument in an expression
    "num": "y h i l f d m w v s",
    "few": "i l f d m w",
    "int": "y h i l",
    "text": "s u",
    "time": "t n day s",
    "any": "y i l f d m w s b t n day",
    "cond": "b",
    "one": "i d m s t day b",
}

_ARITHMETIC = ["{num} $ {num2}", "{num} $ 3", "7 $ {num}", "{num} $ 0", "{num} $ 1.5", "{num} $ NULL"]
_ORDER = ["{any} $ {any}", "{num} $ {few2}", "{num} $ 1", "{time} $ '2020-02-29'", "{text} $ {text2}", "p $ p",
          "{any} $ NULL", "{d} $ CAST('NaN' AS DOUBLE)"]  # fmt: skip
OPERATORS: dict[type, list[str]] = {
    exp.Column: ["{any}", "p.x", "p.y", "k.a"],
    exp.Literal: ["1", "'a'", "1.50", "3000000000", "1e3"],
    exp.RawString: [r"'a\tb'", "'it''s'"],
    exp.Boolean: ["true", "false"],
    exp.Null: ["NULL", "NULL IS NULL", "CAST(NULL AS INT) + {num}"],
    exp.Paren: ["({num}) + ({num})"],
    exp.Cast: ["CAST({num} AS $)".replace("$", name) for name in
               ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 18)",
                "DECIMAL(5, 0)", "BOOLEAN", "STRING", "TIMESTAMP")]
              + ["CAST({time} AS $)".replace("$", name) for name in
                 ("STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")]
              + ["CAST({t} AS $)".replace("$", name) for name in
                 ("INT", "BIGINT", "SMALLINT", "DOUBLE", "FLOAT", "DECIMAL(20, 6)", "DECIMAL(12, 0)")]
              + ["CAST({b} AS $)".replace("$", name) for name in ("INT", "DOUBLE", "STRING", "DECIMAL(3, 1)")]
              + ["CAST({s} AS $)".replace("$", name) for name in ("INT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")]
              + ["CAST(CAST((`n`) - TIMESTAMP_NTZ '1970-01-01 00:00:00' AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"],
    exp.TryCast: ["TRY_CAST({num} AS INT)", "TRY_CAST({num} AS TINYINT)", "TRY_CAST({t} AS INT)",
                  "TRY_CAST({s} AS DATE)", "TRY_CAST({d} AS BIGINT)", "TRY_CAST({b} AS INT)"],
    exp.Interval: ["{t} + INTERVAL '90' MINUTES", "{n} - INTERVAL '1.5' SECONDS"],
    exp.Neg: ["-{num}", "-1"],
    exp.Add: [each.replace("$", "+") for each in _ARITHMETIC] + ["{day} + 1", "{day} + {int}",
                                                                "{t} + INTERVAL '1' DAY"],
    exp.Sub: [each.replace("$", "-") for each in _ARITHMETIC] + ["{day} - 1", "{t} - TIMESTAMP '1970-01-01'",
                                                                "CAST({t} - {t} AS DECIMAL(20, 6))"],
    exp.Mul: [each.replace("$", "*") for each in _ARITHMETIC],
    exp.Div: [each.replace("$", "/") for each in _ARITHMETIC],
    exp.Mod: [each.replace("$", "%") for each in _ARITHMETIC],
    exp.IntDiv: ["{int} div {int2}", "{int} div 0", "{m} div 2", "{int} div -1"],
    exp.BitwiseAnd: ["{int} & {int2}"],
    exp.BitwiseOr: ["{int} | {int2}"],
    exp.BitwiseXor: ["{int} ^ {int2}"],
    exp.BitwiseNot: ["~{int}"],
    exp.BitwiseLeftShift: ["{int} << 3", "{l} << {i}"],
    exp.BitwiseRightShift: ["{int} >> 3", "{l} >> {i}"],
    exp.EQ: [each.replace("$", "=") for each in _ORDER],
    exp.NEQ: [each.replace("$", "<>") for each in _ORDER],
    exp.LT: [each.replace("$", "<") for each in _ORDER],
    exp.LTE: [each.replace("$", "<=") for each in _ORDER],
    exp.GT: [each.replace("$", ">") for each in _ORDER],
    exp.GTE: [each.replace("$", ">=") for each in _ORDER],
    exp.NullSafeEQ: [each.replace("$", "<=>") for each in _ORDER],
    exp.NullSafeNEQ: ["{few} IS DISTINCT FROM {few2}"],
    exp.And: ["{b} AND {d} > 1", "{b} AND NULL", "{i} > 0 AND {l} > 0 AND {b}"],
    exp.Or: ["{b} OR {d} > 1", "{b} OR NULL", "{i} > 0 OR {l} > 0 OR {b}"],
    exp.Not: ["NOT {b}", "NOT ({d} > 1 OR {b})"],
    exp.Is: ["{any} IS NULL", "{any} IS NOT NULL", "{b} IS TRUE", "{b} IS NOT FALSE"],
    exp.Between: ["{few} BETWEEN 0 AND {few2}", "{t} BETWEEN '1970-01-01' AND '2020-01-01'"],
    exp.In: ["{num} IN (1, 2, 25)", "{text} IN ('a', 'banana', NULL)", "{one} IN ({one})",
             "{num} NOT IN (0, 1.5, NULL)",
             "{d} IN (CAST('NaN' AS DOUBLE), 0.1D)", "{day} IN (DATE '2020-02-29')", "{i} IN (1, {l}, 25)"],
    exp.Like: ["{text} LIKE $".replace("$", pattern) for pattern in
               ("'a%'", "'%a'", "'%an%'", "'a_c%'", "'%'", "''", "'banana'", "'10\\\\%'", "'%n%n%'",
                "'_'", "'日%'", "u")],
    exp.ILike: ["{text} ILIKE $".replace("$", pattern) for pattern in ("'A%'", "'%AN%'", "'NAÏVE%'", "'a_C'")],
    exp.Escape: ["{s} LIKE '10/%' ESCAPE '/'", "{s} LIKE 'a/_c' ESCAPE '/'"],
    exp.RegexpLike: ["{text} RLIKE 'n[a-c]'", "{text} RLIKE '^.$'"],
    exp.Case: ["CASE WHEN {cond} THEN {one} ELSE {one} END", "CASE WHEN {few} > 1 THEN {few2} END",
               "CASE WHEN {b} THEN 'x' WHEN {d} > 1 THEN {s} END",
               "CASE {i} WHEN 1 THEN 10 WHEN 25 THEN 20L ELSE {l} END"],
    exp.If: ["if({cond}, {few}, {few2})", "if({b}, {s}, 'none')"],
    exp.DPipe: ["{text} || {text2}", "{one} || '-'", "'' || {s}"],
    exp.Bracket: ["a[0]", "a[2]", "a[{i}]", "k['a']", "k['ß']", "k[{u}]", "words[1]"],
    exp.Dot: ["named_struct('q', {one}).q"],
    exp.Anonymous: ["struct({i}, {s} AS z)", "abs({i})"],
    exp.Identifier: ["transform(a, x -> x + 1)", "filter(a, x -> x > {i})", "exists(words, x -> x = {s})"],
    exp.Trim: ["trim({text})", "trim(BOTH 'a' FROM {text})", "trim(LEADING 'xa' FROM {s})",
               "trim(TRAILING {u} FROM {s})"],
    exp.StrPosition: ["position('an' IN {text})", "position({u} IN {s})"],
    exp.Substring: ["substring({text}, 2, 2)", "substring({text} FROM -3 FOR 2)", "substring({text}, -6, 3)",
                    "substring({text}, 0, 2)", "substring({s}, {i}, 2)", "substring({s}, 2, {i})", "substring({s}, -2)",
                    "substring({s}, 3, -1)", "substring({s}, 2, 0)", "substring({s}, -500, 499)", "substring({s}, 3)"],
    exp.Extract: ["extract(YEAR FROM {time})", "extract(HOUR FROM {t})", "extract(WEEK FROM {day})"],
}  # fmt: skip

_OF_DOUBLE = """acos asin atan cbrt cos cosh degrees exp expm1 ln log10 log2 radians rint sign signum sin sinh sqrt tan
    tanh log"""
_OF_TEXT = "upper ucase lower lcase reverse initcap length len char_length character_length ascii ltrim rtrim"
_OF_TIME = """year quarter month day dayofmonth dayofweek dayofyear weekday weekofyear hour minute second last_day
    unix_date unix_micros unix_millis unix_seconds unix_timestamp to_unix_timestamp"""
_CASTS = """boolean tinyint smallint int bigint float double decimal string date timestamp to_timestamp_ltz
    to_timestamp_ntz to_date to_timestamp"""
_UNITS = ("year", "YYYY", "quarter", "month", "mon", "week", "day", "dd", "hour", "minute", "second", "millisecond",
          "microsecond", "moment")  # fmt: skip
FUNCTIONS: dict[str, list[str]] = {
    **{name: [f"{name}({{num}})", f"{name}(NULL)"] for name in _OF_DOUBLE.split()},
    **{name: [f"{name}({{text}})", f"{name}({{one}})"] for name in _OF_TEXT.split()},
    **{name: [f"{name}({{time}})"] for name in _OF_TIME.split()},
    **{name: [f"{name}({{any}})"] for name in _CASTS.split()},
    "abs": ["abs({num})"],
    "atan2": ["atan2({few}, {few2})"],
    "ceil": ["ceil({num})"],
    "ceiling": ["ceiling({num})"],
    "e": ["e()", "e() * {num}"],
    "floor": ["floor({num})"],
    "greatest": ["greatest({few}, {few2})", "greatest({one}, {one}, NULL)", "greatest({s}, {u}, 'b')"],
    "hypot": ["hypot({few}, {few2})"],
    "isnan": ["isnan({num})"],
    "least": ["least({few}, {few2})", "least({one}, {one}, NULL)", "least({s}, {u}, 'b')"],
    "mod": ["mod({few}, {few2})"],
    "nanvl": ["nanvl({f}, {d})", "nanvl({d}, 1)", "nanvl({f}, {f})"],
    "negative": ["negative({num})"],
    "pi": ["pi()"],
    "pmod": ["pmod({int}, {int2})", "pmod({few}, 3)", "pmod({f}, {f})", "pmod({d}, {i})", "pmod({int}, -3)"],
    "pow": ["pow({few}, {few2})", "pow({d}, 0.5)"],
    "power": ["power({few}, 3)"],
    "round": [
        "round({num})",
        "round({num}, 2)",
        "round({num}, -1)",
        "round({num}, 30)",
        "round({num}, -3)",
        "round({d}, 1)",
    ],
    "shiftleft": ["shiftleft({int}, {i})", "shiftleft({int}, 33)"],
    "shiftright": ["shiftright({int}, {i})", "shiftright({int}, 1)"],
    "shiftrightunsigned": ["shiftrightunsigned({int}, {i})", "shiftrightunsigned({int}, 30)"],
    "log": ["log({few})", "log({few}, {few2})", "log(2, {d})"],
    "coalesce": [
        "coalesce({one}, {one})",
        "coalesce({i}, {l}, {d})",
        "coalesce({few}, 0)",
        "coalesce({v}, {few})",
        "coalesce({s}, 'none')",
    ],
    "equal_null": ["equal_null({few}, {few2})"],
    "if": ["if({b}, {one}, {one})", "if({d} > 1, {i}, {d})"],
    "ifnull": ["ifnull({few}, {few2})"],
    "isnotnull": ["isnotnull({any})"],
    "isnull": ["isnull({any})"],
    "nullif": ["nullif({few}, {few2})", "nullif({s}, 'a')"],
    "nvl": ["nvl({few}, {few2})"],
    "nvl2": ["nvl2({any}, {i}, {d})"],
    "concat": ["concat({text}, '-', {one})", "concat()", "concat({s}, NULL)", "concat({s}, {u}, {s})"],
    "concat_ws": ["concat_ws('-', {s}, {u}, {i})", "concat_ws({u}, {s}, NULL, words)", "concat_ws(',')"],
    "contains": ["contains({text}, 'an')", "contains({s}, {u})", "contains({s}, '')"],
    "endswith": ["endswith({text}, 'a')", "endswith({s}, {u})", "endswith({s}, '')"],
    "startswith": ["startswith({text}, 'a')", "startswith({s}, {u})", "startswith({s}, '本')"],
    "instr": ["instr({text}, 'an')", "instr({s}, {u})", "instr({s}, '')"],
    "left": ["left({text}, 2)", "left({s}, -1)", "left({s}, {i})", "left({s}, 0)"],
    "right": ["right({text}, 2)", "right({s}, -1)", "right({s}, {i})", "right({s}, 0)"],
    "locate": ["locate('an', {text})", "locate({u}, {s}, 2)", "locate('a', {s}, 0)", "locate('', {s})"],
    "position": ["position('an', {text}, 2)", "position({u}, {s})"],
    "lpad": [
        "lpad({text}, 5)",
        "lpad({text}, 4, 'xy')",
        "lpad({s}, 3, 'ß')",
        "lpad({s}, 0)",
        "lpad({s}, 3, '')",
    ],
    "rpad": [
        "rpad({text}, 5)",
        "rpad({text}, 4, 'xy')",
        "rpad({s}, 3, 'ß')",
        "rpad({s}, -1)",
        "rpad({s}, 3, {u})",
    ],
    "regexp_like": ["regexp_like({text}, '^b.*a$')"],
    "rlike": ["rlike({text}, 'an')"],
    "repeat": ["repeat({text}, 2)", "repeat({u}, {y})"],
    "replace": [
        "replace({text}, 'a', 'xy')",
        "replace({text}, 'a')",
        "replace({s}, '', 'x')",
        "replace({s}, {u}, '-')",
    ],
    "split_part": ["split_part({text}, '.', 2)", "split_part({s}, '.', -1)", "split_part({s}, {u}, 1)"],
    "substr": ["substr({text}, 2, 2)", "substr({s}, -3)"],
    "substring": ["substring({text}, 2, 2)", "substring({s}, {i}, {i})"],
    "substring_index": [
        "substring_index({text}, '.', 2)",
        "substring_index({s}, 'a', -2)",
        "substring_index({s}, {u}, 1)",
    ],
    "translate": ["translate({text}, 'abx', '12')", "translate({s}, {u}, 'z')"],
    "add_months": ["add_months({time}, 1)", "add_months({day}, -14)", "add_months({day}, {y})"],
    "date_add": ["date_add({time}, 2)", "date_add({day}, {y})"],
    "date_sub": ["date_sub({time}, 1)", "date_sub({day}, {y})"],
    "date_diff": ["date_diff({day}, '2020-02-01')"],
    "datediff": ["datediff({time}, {time})", "datediff({t}, {day})"],
    "date_from_unix_date": ["date_from_unix_date({h})", "date_from_unix_date(18262)"],
    "date_part": ["date_part('year', {time})", "date_part('HOUR', {t})"],
    "datepart": ["datepart('month', {day})"],
    "date_trunc": [f"date_trunc('{unit}', {{time}})" for unit in _UNITS] + ["date_trunc({u}, {t})"],
    "trunc": [f"trunc({{time}}, '{unit}')" for unit in _UNITS] + ["trunc({day}, {u})"],
    "from_unixtime": ["from_unixtime({i})", "from_unixtime({y})"],
    "timestamp_micros": ["timestamp_micros({int})", "timestamp_micros(1700000000123456)"],
    "timestamp_millis": ["timestamp_millis({i})", "timestamp_millis({y})"],
    "timestamp_seconds": ["timestamp_seconds({i})", "timestamp_seconds({y})", "timestamp_seconds({m})"],
    "array": ["array({one}, {one})", "array()", "array({i}, {l}, 2)"],
    "array_contains": ["array_contains(a, 2)", "array_contains(a, {i})", "array_contains(words, 'a')"],
    "array_size": ["array_size(a)"],
    "cardinality": ["cardinality(a)", "cardinality(k)"],
    "size": ["size(a)", "size(k)"],
    "element_at": ["element_at(a, 1)", "element_at(a, -1)", "element_at(k, 'a')", "element_at(k, {u})"],
    "get": ["get(a, 1)", "get(a, {i})"],
    "map": ["map('a', {i}, 'b', {l})", "map({i}, {s})['a']", "map()"],
    "map_keys": ["map_keys(k)"],
    "map_values": ["map_values(k)"],
    "named_struct": ["named_struct('q', {one}, 'r', 1)"],
    "get_json_object": [
        "get_json_object({j}, '$.a')",
        "get_json_object({j}, '$.a[0]')",
        "get_json_object({j}, '$[0].a')",
        "get_json_object({j}, '$.a.c')",
        "get_json_object({j}, \"$['c.d']\")",
        "get_json_object({text}, '$.a')",
        "CAST(get_json_object({j}, '$.a') AS DOUBLE)",
    ],
    "to_json": ["to_json(struct({i}, {s}, {d}, {t}, {day}, k, {b}, {m}))", "to_json(k)"],
    "hash": ["hash({any})", "hash({s}, {l}, {i})"],
    "xxhash64": ["xxhash64({any})", "xxhash64({s}, {i}, {d})"],
    "hll_sketch_estimate": ["hll_sketch_estimate({g})"],
}


def expanded(template: str) -> list[str]:
    """The expressions of a template: every column of a kind in place of `{kind}`; `{kind2}` varies independently."""
    fields = {part.split("}")[0] for part in template.split("{")[1:]}
    choices = {}
    for field in fields:
        kind = field.removesuffix("2")
        choices[field] = KINDS[kind].split() if kind in KINDS else [kind]
    texts = []
    for combination in itertools.product(*choices.values()):
        text = template
        for field, column in zip(choices, combination, strict=True):
            text = text.replace("{" + field + "}", f"`{column}`")
        texts.append(text)
    return texts


def expressions(templates: list[str], most: int = 1_000) -> list[str]:
    """The expressions of templates that the interpreter takes, at most so many of each; there is one at least."""
    scalars, texts = InterpretedScalars(), []
    for template in templates:
        taken = [text for text in expanded(template) if scalars.compiled(TYPES, text) is not None]
        assert taken, f"the interpreter takes no expression of {template}"
        texts += taken[:: -(-len(taken) // most)]
    return list(dict.fromkeys(texts))


def hostile_table(rows: int, seed: int, null_share: float = 0.1) -> pa.Table:
    """Rows of values at the limits of their types."""
    chance = random.Random(seed)
    columns = {}
    for name, (type, values) in COLUMNS.items():
        drawn = [None if chance.random() < null_share else chance.choice(values) for _ in range(rows)]
        columns[name] = pa.array(drawn, type)
    return pa.table(columns)
