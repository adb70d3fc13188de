"""Who ends up in a family with whom."""

from __future__ import annotations

import pickle

import pytest

from tests.plan.bids import compiled, planned
from transom.plan.families import Family
from transom.plan.family_groups import FamilyMemory, families_of
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Strategy

WINDOW = "[RANGE 10 SLIDE 10 WATTR seq]"


def put(
    wheres: dict[str, str],
    fragments: FragmentSharing = FragmentSharing.FAMILIES,
    naive: bool = False,
    limits: Limits | None = None,
) -> list[tuple[str, set[str]]]:
    """The families of queries by the rest of their text, each with its kind."""
    queries = [
        compiled(f"SELECT sum(price) FROM bids {WINDOW} {rest}", name, naive) for name, rest in wheres.items()
    ]
    plan = planned(*queries, strategy=Strategy(fragments=fragments, limits=limits or Limits()))
    found = [(kind(family), {n for m in family.members for n in m.queries}) for family in plan.families]
    assert sorted(name for _, names in found for name in names) == sorted(wheres), "each in one"
    return sorted(found, key=lambda one: sorted(one[1]))


def kind(family: Family) -> str:
    if family.grid is not None:
        return "grid"
    return "range" if family.axis is not None else "signed" if family.signed else "alone"


@pytest.mark.parametrize(
    ("wheres", "expected"),
    [
        pytest.param(
            {"a": "WHERE price > 1", "b": "WHERE price > 2", "c": "WHERE price BETWEEN 3 AND 4"},
            [("range", {"a", "b", "c"})],
            id="conditions on one scalar",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND site = 1", "b": "WHERE site = 1 AND price > 2"},
            [("range", {"a", "b"})],
            id="the same rest, in any order",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND site = 1", "b": "WHERE price > 2 AND site = 1",
             "c": "WHERE price > 2 AND site = 2", "d": "WHERE price > 3 AND site = 2"},
            [("range", {"a", "b"}), ("range", {"c", "d"})],
            id="another rest, another family",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND site = 1", "b": "WHERE price > 1 AND site = 2",
             "c": "WHERE price > 1 AND site = 3", "d": "WHERE price > 2 AND site = 3"},
            [("range", {"a", "b", "c"}), ("alone", {"d"})],
            id="the larger of two families that it fits",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND kind LIKE 'a%'", "b": "WHERE price > 2 AND kind LIKE 'a%'"},
            [("range", {"a", "b"})],
            id="an opaque rest is a rest",
        ),
        pytest.param(
            {"a": "WHERE price > seq", "b": "WHERE seq % 2 = price", "c": "WHERE kind LIKE 'a%'"},
            [("signed", {"a", "b", "c"})],
            id="nothing in common: signatures",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND seq < 5", "b": "WHERE seq < 6 AND price > 2",
             "c": "WHERE price > 3 OR seq = 1", "d": "WHERE price > 3 AND site = 1"},
            [("grid", {"a", "b", "c"}), ("alone", {"d"})],
            id="two scalars, in any order, by AND and OR",
        ),
        pytest.param(
            {name: f"WHERE price > {i} AND seq < {i} AND kind LIKE 'a%'" for i, name in enumerate("abc")},
            [("grid", {"a", "b", "c"})],
            id="a part that all have is no axis of the grid",
        ),
        pytest.param(
            {name: f"WHERE price > {i} AND seq < {i} AND site < {i} AND amount < {i} AND kind > '{i}'"
             for i, name in enumerate("ab")},
            [("signed", {"a", "b"})],
            id="too many scalars for a grid",
        ),
        pytest.param(
            {f"{i}{j}": f"WHERE price > {i} AND seq < {j}" for i in range(5) for j in range(4)},
            [("grid", {f"{i}{j}" for i in range(5) for j in range(4)})],
            id="a grid in place of small range families",
        ),
        pytest.param(
            {f"{i}{j}": f"WHERE price > {i} AND seq < {j}" for i in range(3) for j in range(9)},
            [("range", {f"{i}{j}" for j in range(9)}) for i in range(3)],
            id="range families that are large enough",
        ),
        pytest.param(
            {"a": "WHERE price > 1", "b": "WHERE price > 2", "c": "WHERE kind = 'a'", "d": ""},
            [("range", {"a", "b"}), ("alone", {"c"}), ("alone", {"d"})],
            id="one that is left, and one that asks for everything",
        ),
        pytest.param(
            {"a": "WHERE price > 1", "b": "WHERE price > 2 GROUP BY site",
             "c": "WHERE price > 3 GROUP BY site"},
            [("range", {"a"}), ("range", {"b", "c"})],
            id="other groups, another family on the same axis",
        ),
        pytest.param(
            {"a": "WHERE price > 1 GROUP BY site", "b": "WHERE price > 2 GROUP BY kind",
             "c": "WHERE seq > 3 GROUP BY kind"},
            [("range", {"a"}), ("range", {"b"}), ("alone", {"c"})],
            id="one each of different groups, on one axis",
        ),
        pytest.param(
            {"a": "WHERE price > 1 OR price IS NULL", "b": "WHERE NOT price IN (1, 2)"},
            [("range", {"a", "b"})],
            id="any condition on one scalar",
        ),
        pytest.param(
            {"a": "WHERE price > 1 AND price < 5", "b": "WHERE price > 2"},
            [("range", {"a", "b"})],
            id="several conjuncts on one scalar are one condition",
        ),
        pytest.param(
            {"a": "WHERE price > 1", "b": "WHERE price > 1"},
            [("alone", {"a", "b"})],
            id="the same WHERE is one selection",
        ),
    ],
)  # fmt: skip
def test_selections_find_their_family(wheres: dict[str, str], expected: list[tuple[str, set[str]]]) -> None:
    assert put(wheres) == expected


MIXED = {
    "a": "WHERE price > 1",
    "b": "WHERE price > 2",
    "c": "WHERE kind LIKE 'a%'",
    "d": "",
    "e": "GROUP BY site",
}


@pytest.mark.parametrize(
    ("fragments", "expected"),
    [
        pytest.param(FragmentSharing.UNSHARED, [("alone", {name}) for name in "abcde"], id="unshared"),
        pytest.param(FragmentSharing.JOINT, [("signed", {"a", "b", "c", "d"}), ("alone", {"e"})], id="joint"),
        pytest.param(
            FragmentSharing.FAMILIES,
            [("range", {"a", "b"}), *(("alone", {name}) for name in "cde")],
            id="families",
        ),
    ],
)
def test_a_strategy_can_be_forced(fragments: FragmentSharing, expected: list[tuple[str, set[str]]]) -> None:
    assert put(MIXED, fragments) == expected


@pytest.mark.parametrize("fragments", FragmentSharing)
def test_who_keeps_every_tuple_shares_nothing(fragments: FragmentSharing) -> None:
    assert put(MIXED, fragments, naive=True) == [("alone", {name}) for name in "abcde"]


def test_signatures_are_of_not_too_many() -> None:
    few = Limits(signature_members=2)
    wheres = {name: f"WHERE price > seq + {i}" for i, name in enumerate("abcde")}
    assert put(wheres, limits=few) == [("signed", {"a", "b"}), ("signed", {"c", "d"}), ("alone", {"e"})]
    assert put(wheres, FragmentSharing.JOINT, limits=few) == [("signed", set("abcde"))]


def test_a_family_in_which_nothing_changed_is_used_again() -> None:
    queries = [compiled(f"SELECT sum(price) FROM bids {WINDOW} WHERE price > {i}", f"q{i}") for i in range(3)]
    queries.append(compiled(f"SELECT sum(price) FROM bids {WINDOW} GROUP BY site", "other"))
    selections = planned(*queries).selections
    memory = FamilyMemory()
    before = families_of(selections, 9, Strategy(), memory)
    same = families_of(selections, 9, Strategy(), memory)
    assert list(map(id, same)) == list(map(id, before))
    fewer = families_of(selections[1:], 9, Strategy(), memory)
    kept = set(map(id, fewer)) & set(map(id, before))
    assert len(fewer) == 2 and len(kept) == 1, "one of two lost a member"


def test_a_family_travels_without_its_members() -> None:
    queries = [compiled(f"SELECT sum(price) FROM bids {WINDOW} WHERE price > {i}", f"q{i}") for i in range(3)]
    (family,) = planned(*queries).families
    there = pickle.loads(pickle.dumps(family))
    assert (len(there), there.members, there.slots) == (3, (), family.slots)
    assert [own.tolist() for own in there.ranges] == [[0, 1, 2], [1, 2, 3], [4, 4, 4]]


def test_a_grid_family_travels_with_its_boxes_and_without_what_it_remembers() -> None:
    wheres = [f"price > {i} AND seq < {9 - i}" for i in range(3)]
    queries = [
        compiled(f"SELECT sum(price) FROM bids {WINDOW} WHERE {w}", f"q{i}") for i, w in enumerate(wheres)
    ]
    (family,) = planned(*queries).families
    family.parts(2)
    there = pickle.loads(pickle.dumps(family))
    assert there.grid is not None and there.grid.starts.tolist() == [[1, 0], [2, 0], [3, 0]]
    assert there.grid.stops.tolist() == [[4, 3], [4, 2], [4, 1]]
    assert set(vars(there)) == set(Family.__dataclass_fields__)
    assert [part.ids.tolist() for part in there.parts(2)] == [
        family.ids[:2].tolist(),
        family.ids[2:].tolist(),
    ]
