"""Which slots a selection keeps, and which are read off others."""

from __future__ import annotations

import pytest

from tests.plan.bids import compiled, planned
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import source_columns
from transom.plan.slot_sources import is_answered, readable_slots, slots_to_keep, source_slot, source_slots
from transom.plan.strategy import Strategy

WINDOW = "FROM bids [RANGE 10 SLIDE 10 WATTR seq]"


def query(items: str, name: str = "q") -> CompiledQuery:
    return compiled(f"SELECT {items} {WINDOW}", name)


@pytest.mark.parametrize(
    ("items", "keeps"),
    [
        pytest.param("variance(price), avg(price), count(price), sum(price)", ["Moments"],
                     id="VARIANCE serves AVG, COUNT and SUM of doubles"),
        pytest.param("avg(price), variance(price)", ["Moments"], id="in any order"),
        pytest.param("variance(seq), avg(seq)", ["Moments", "Sum"],
                     id="an average of integers is added up exactly all the same, and only counted by it"),
        pytest.param("variance(amount), sum(amount), count(amount)", ["Moments", "Sum"],
                     id="so is a sum of decimals"),
        pytest.param("variance(price), min(price), count(*)", ["Moments", "Extreme", "CountRows"],
                     id="it knows no extremes, and no rows without a value"),
        pytest.param("variance(price), avg(price) FILTER (WHERE site = 1)", ["Moments", "Sum", "Count"],
                     id="a FILTER keeps apart"),
        pytest.param("variance(price), avg(seq + 0.5D)", ["Moments", "Sum", "Count"],
                     id="so does another argument"),
    ],
)  # fmt: skip
def test_what_is_served_is_not_kept(items: str, keeps: list[str]) -> None:
    found = slots_to_keep(query(items).slots)
    assert [type(slot.accumulator).__name__ for slot in found.values()] == keeps
    assert is_answered(query(items), found)


def test_a_slot_is_read_off_itself_where_it_is_kept() -> None:
    average, variance = query("avg(price)"), query("variance(price)")
    both = [slot.id for slot in (*average.slots, *variance.slots)]
    assert list(source_slots(average, both)) == both[:2]
    assert list(source_slots(average, both[2:])) == both[2:], "else off moments"
    assert source_slot(variance.slots[0], both[:2]) is None and not is_answered(variance, both[:2])


def test_columns_of_a_served_slot_are_some_of_its_servers() -> None:
    total, count = query("avg(price)").slots
    (moments,) = query("variance(price)").slots
    assert source_columns(total, {moments.id: 2}) == ("s2_3",)
    assert source_columns(count, {moments.id: 2}) == ("s2_0",)
    assert source_columns(total, {moments.id: 2, total.id: 0}) == ("s0_0",)


def test_queries_know_the_slots_that_they_could_be_served_by() -> None:
    (moments,) = query("variance(price)").slots
    assert readable_slots([query("sum(price)")])[moments.id] == moments
    assert moments.id not in readable_slots([query("sum(seq), max(price)")])


@pytest.mark.parametrize("order", [1, -1], ids=["VARIANCE first", "VARIANCE last"])
def test_queries_that_join_together_share_moments_in_any_order(order: int) -> None:
    queries = [query("variance(price)", "v"), query("avg(price)", "a"), query("sum(price)", "s")][::order]
    (selection,) = planned(*queries).selections
    assert [type(slot.accumulator).__name__ for slot in selection.slots] == ["Moments"]
    apart = planned(*queries, strategy=Strategy(shared=False)).selections
    assert sum(len(one.slots) for one in apart) == 4
