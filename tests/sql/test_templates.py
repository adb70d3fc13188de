"""Queries that differ in constants only are read once, and come out as if each was read alone."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.generated_texts import TextMaker
from tests.sql.test_bind import QUERIES
from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.errors import SQLError
from transom.sql import Binding, Query, bind, bind_one
from transom.sql.binding.templates import cut
from transom.sql.query import And, Comparison, Member, Truth
from transom.sql.syntax.spark_parser import TransomParser

WINDOW = "[RANGE 5 min SLIDE 1 min]"
GENERATED = 200

# A query, and two sets of constants for it. The second set is put into what was read with the first ...
READ_ONCE = {
    "lengths of windows": ("SELECT count(*) FROM Trades [RANGE {} s SLIDE {} s]", "90 30", "75 20"),
    "quoted lengths": ("SELECT count(*) FROM Trades [RANGE '{} s' SLIDE '1 min']", "5", "9"),
    "numbers of rows": ("SELECT count(*) FROM Trades [ROWS {} SLIDE {}]", "90 30", "75 20"),
    "window()": ("SELECT count(*) FROM Trades GROUP BY window(ts, '{} min', '{} min')", "5 1", "4 2"),
    "comparisons": (
        f"SELECT count(*) FROM Trades {WINDOW} WHERE volume > {{}} AND price <= -{{}}",
        "1 2",
        "3 4.5",
    ),
    "members": (f"SELECT count(*) FROM Trades {WINDOW} WHERE symbol IN ('{{}}', '{{}}')", "a b", "c c"),
    "bounds": (f"SELECT count(*) FROM Trades {WINDOW} WHERE site BETWEEN {{}} AND {{}}", "1 2", "3 4"),
    "patterns": (f"SELECT count(*) FROM Trades {WINDOW} WHERE symbol LIKE '{{}}'", "a", "b"),
    "numbers that only Spark compares": (
        f"SELECT count(*) FROM Trades {WINDOW} WHERE volume > {{}}",
        "1",
        "9223372036854775808",
    ),
    "arithmetic": (f"SELECT sum(price * {{}}) AS v FROM Trades {WINDOW}", "3", "2.25"),
    "aggregates that differ otherwise": (
        f"SELECT sum(price * {{}}) AS v, max(price * {{}}) AS w FROM Trades {WINDOW}",
        "1 2",
        "2 2",
    ),
    "FILTER": (f"SELECT sum(price) FILTER (WHERE volume > {{}}) AS v FROM Trades {WINDOW}", "1", "2"),
    "HAVING": (f"SELECT sum(price) AS v FROM Trades {WINDOW} HAVING v > {{}}", "1", "2"),
    "aggregates in HAVING": (
        f"SELECT max(price) AS v FROM Trades {WINDOW} HAVING sum(price + {{}}) > {{}}",
        "1 1",
        "2 3",
    ),
}
# ... or is not, because there a constant has a say in how the rest is read.
READ_ALONE = {
    "a column that is named after it": (f"SELECT sum(price * {{}}) FROM Trades {WINDOW}", "3", "4"),
    "a position": (f"SELECT site, live, max(price) AS m FROM Trades {WINDOW} GROUP BY {{}}, 1, 2", "1", "2"),
    "a key": (f"SELECT site % {{}} AS k FROM Trades {WINDOW} GROUP BY site % {{}}", "3 3", "4 4"),
    "a parameter": (f"SELECT approx_percentile(price, {{}}) AS p FROM Trades {WINDOW}", "0.5", "0.9"),
    "aggregates that are one": (
        f"SELECT sum(price + {{}}) AS a, sum(price + {{}}) AS b FROM Trades {WINDOW}",
        "1 1",
        "1 2",
    ),
    "a join's condition": (
        f"SELECT max(cp) AS m FROM Trades T {WINDOW} JOIN Close C ON T.symbol = C.symbol AND C.sector > {{}}",
        "1",
        "2",
    ),
    "a type": (f"SELECT max(cast(cost AS decimal({{}}, 2))) AS m FROM Trades {WINDOW}", "10", "12"),
    "an index": (f"SELECT max(tags[{{}}]) AS m FROM Trades {WINDOW}", "0", "1"),
    "a typed text": (f"SELECT count(*) FROM Trades {WINDOW} WHERE ts > TIMESTAMP '2020-01-{{}}'", "01", "02"),
    "a computed column": (f"SELECT sum(price) / {{}} AS m FROM Trades {WINDOW}", "10", "100"),
    "a name": (f"SELECT sum(price) AS `{{}}` FROM Trades {WINDOW}", "10", "100"),
}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed from now on."""
    read: list[str] = []
    parse = TransomParser.parse

    def counting(self: TransomParser, tokens: Any, text: str) -> Any:
        read.append(text)
        return parse(self, tokens, text)

    monkeypatch.setattr(TransomParser, "parse", counting)
    return read


@pytest.mark.parametrize("case", [*READ_ONCE, *READ_ALONE])
def test_a_query_from_a_template_equals_the_query_bound_alone(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, *constants = (READ_ONCE | READ_ALONE)[case]
    texts = {which: text.format(*which.split()) for which in constants}
    alone = {name: bound(one) for name, one in texts.items()}
    read = counted(monkeypatch)
    assert bind(texts, CATALOG, Rules()) == alone
    assert len(read) == (1 if case in READ_ONCE else 2)
    assert bind(dict(reversed(texts.items())), CATALOG, Rules()) == alone


def test_constants_that_make_two_aggregates_equal_are_bound_without_the_template() -> None:
    text = f"SELECT sum(price * 1) AS a, sum(price * 2) AS b FROM Trades {WINDOW}"
    both = bind({"two": text, "one": text.replace("2)", "1)")}, CATALOG, Rules())
    assert [len(query.calls) for query in both.values() if isinstance(query, Query)] == [2, 1]


_CONSTANTS = re.compile(r"'[^']*'|\b\d+(?:\.\d+)?\b")


@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_any_constants_give_the_query_or_error_of_binding_alone(text: str, draw: Any) -> None:
    def other(found: re.Match[str]) -> str:
        if draw.random() < 0.6:
            return found[0]
        if found[0].startswith("'"):
            return draw.choice(["'2 minutes'", "'a'", "''", "'2020-02-30'", "'it''s'"])
        return draw.choice(["0", "1", "2", "0.5", "1e3", "9223372036854775808", "3L"])

    texts = {"first": text} | {str(n): _CONSTANTS.sub(other, text) for n in range(4)}
    assert_each_is_as_bound_alone(texts)


def assert_each_is_as_bound_alone(texts: dict[str, str]) -> list[Query | SQLError]:
    """Compare queries that are bound together with each bound alone."""
    outcomes = bind(texts, CATALOG, Rules())
    for name, outcome in outcomes.items():
        alone = bind({name: texts[name]}, CATALOG, Rules())[name]
        if isinstance(alone, SQLError):
            assert isinstance(outcome, SQLError), texts[name]
            assert (str(outcome), outcome.start, outcome.end) == (str(alone), alone.start, alone.end)
        else:
            assert outcome == alone, texts[name]
    return list(outcomes.values())


def test_generated_texts_are_bound_the_same_with_and_without_templates(seed: int) -> None:
    maker, bound_ones = TextMaker(random.Random(seed)), 0
    for _ in range(GENERATED):
        text = maker.text()
        texts = {str(n): maker.filled(text) for n in range(5)}
        together = assert_each_is_as_bound_alone(texts)
        bound_ones += sum(isinstance(one, Query) for one in together)
        # What was bound before in the same binding doesn't matter either.
        binding = Binding(CATALOG, Rules())
        one_by_one = [binding.bind({name: one})[name] for name, one in texts.items()]
        assert [str(one) for one in one_by_one] == [str(one) for one in together]
    assert bound_ones > GENERATED  # most texts are queries


def test_of_two_errors_the_first_is_reported_whatever_was_bound_before() -> None:
    text = f"SELECT count(*) FROM Trades {WINDOW} WHERE concat(symbol, '{{}}') LIKE '{{}}' OR lower(symbol) LIKE '{{}}'"
    texts = {"known": text.format("a", "b", "c"), "next": text.format("a", "x", "c")}
    binding = Binding(CATALOG, Rules())  # its types make a string of LIKE
    for name, one in texts.items():
        error = binding.bind({name: one})[name]
        assert isinstance(error, SQLError) and error.start == one.index("concat"), one


def test_an_error_points_into_its_own_query() -> None:
    text = f"SELECT count(*) FROM Trades {WINDOW} WHERE volume > 1 AND nothing > 2"
    longer = text.replace("> 1 ", "> 1000000 ")
    errors = bind({"short": text, "long": longer}, CATALOG, Rules())
    assert [error.start for error in errors.values() if isinstance(error, SQLError)] == [
        text.index("nothing"),
        longer.index("nothing"),
    ]


def test_an_error_in_a_later_query_s_constants_points_into_that_query() -> None:
    text = "SELECT count(*) FROM Trades [RANGE 1000 s SLIDE 10 s]"
    wrong = "SELECT count(*) FROM Trades [RANGE 5 s SLIDE 0 s]"
    outcome = bind({"right": text, "wrong": wrong}, CATALOG, Rules())["wrong"]
    assert isinstance(outcome, SQLError)
    assert outcome.text == wrong
    assert wrong[outcome.start : outcome.end] == "0 s"


def test_equal_scalars_of_different_queries_are_one_object() -> None:
    texts = {
        "a": f"SELECT sum(price * volume) AS v FROM Trades {WINDOW} WHERE volume > 3",
        "b": f"SELECT avg(price * volume) AS v FROM Trades T {WINDOW}, Close C WHERE T.symbol = C.symbol",
    }
    a, b = bind(texts, CATALOG, Rules()).values()
    assert isinstance(a, Query)
    assert isinstance(b, Query)
    assert a.calls[0].args[0] is b.calls[0].args[0]


def test_resolved_types_are_reused_by_the_next_call() -> None:
    rules = Rules()
    binding = Binding(CATALOG, rules)
    text = f"SELECT sum(price * volume) / count(*) AS m FROM Trades {WINDOW} WHERE abs(price) > 1"
    first = binding.bind({"a": text})["a"]
    asked = len(rules.calls)
    assert binding.bind({"a": text})["a"] == first
    assert len(rules.calls) == asked


def test_errors_are_not_cached() -> None:
    class Mending(Rules):
        broken = True

        def types(self, columns: Any, expressions: Any) -> Any:
            found = super().types(columns, expressions)
            return [SQLError("not yet") for _ in found] if self.broken else found

    rules = Mending()
    binding = Binding(CATALOG, rules)
    text = f"SELECT sum(price * volume) AS v FROM Trades {WINDOW}"
    assert isinstance(binding.bind({"a": text})["a"], SQLError)
    rules.broken = False
    assert isinstance(binding.bind({"a": text})["a"], Query)


@pytest.mark.parametrize("text", ['SELECT "1" + 2', "SELECT 1 -- 2", "SELECT 1 /* 2 */", r"SELECT '\'' + 1"])
def test_a_text_with_ambiguous_quotes_is_not_cut(text: str) -> None:
    assert cut(text).constants == ()


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("a1 + 1 + 1.5 + 2e-3", ("1", "1.5", "2e-3")),
        ("1L + .5 + 5. + 1.5D + x1", ()),
        ("'it''s' = `5`", ("'it'", "'s'", "`5`")),
    ],
)
def test_only_whole_constants_are_cut_out(text: str, constants: tuple[str, ...]) -> None:
    assert cut(text).constants == constants


# --- HAVING as a predicate -------------------------------------------------------------------


def kept(having: str) -> Any:
    text = f"SELECT site, symbol, sum(price) AS v, count(*) AS n FROM Trades {WINDOW} GROUP BY site, symbol"
    return bind_one(f"{text} HAVING {having}", CATALOG, Rules()).kept


def test_having_is_also_a_predicate_over_keys_and_aggregates() -> None:
    both = kept("v > 1.5 AND symbol IN ('a', 'b')")
    assert isinstance(both, And)
    value, symbol = both.parts
    assert isinstance(value, Comparison)
    assert (value.scalar.sql, value.op, value.value) == ("`a0`", ">", 1.5)
    assert isinstance(symbol, Member)
    assert (symbol.scalar.sql, symbol.values) == ("`k1`", ("a", "b"))


def test_expressions_in_having_are_scalars_over_keys_and_aggregates() -> None:
    mean = kept("v / n >= 2")
    assert isinstance(mean, Comparison)
    assert mean.scalar.sql == "`a0` / `a1`"


def test_comparisons_that_the_kernel_can_t_make_are_left_to_spark() -> None:
    opaque = kept("symbol LIKE 'a%'")
    assert isinstance(opaque, Truth)
    assert opaque.scalar.sql == "`k1` LIKE 'a%'"


def test_without_having_every_result_is_kept() -> None:
    assert bound(f"SELECT count(*) FROM Trades {WINDOW}").kept is None
