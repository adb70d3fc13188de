"""Tables whose rows last: after any changes they hold what a new table would."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

from transom.state.lasting_tables import LastingTable


class Entry:
    def __init__(self, number: int):
        self.number = number


def encoded(entries: Mapping[str, Entry]) -> pa.Table:
    table = pa.table(
        {
            "key": pa.array(list(entries), pa.string()),
            "number": pa.array([entry.number for entry in entries.values()], pa.int64()),
        }
    )
    odd = any(
        entry.number % 7 == 3 for entry in entries.values()
    )  # as units of a query: a column that few need
    return table.append_column("odd", pa.array([True] * len(entries))) if odd else table


@pytest.mark.parametrize("seed", range(20))
def test_a_table_after_changes_is_the_one_of_its_objects(seed: int) -> None:
    dice, entries, numbers = random.Random(seed), dict[str, Entry](), iter(range(10_000))
    lasting = LastingTable(encoded)
    for _ in range(30):
        for key in [key for key in entries if dice.random() < 0.2]:
            del entries[key]
        for key in [key for key in entries if dice.random() < 0.1]:
            entries[key] = Entry(next(numbers))
        for _ in range(dice.randrange(4)):
            entries[f"k{dice.randrange(20)}"] = Entry(next(numbers))
        if dice.random() < 0.1:
            entries = dict(reversed(entries.items()))
        table = lasting.of(entries)
        assert table.select(["key", "number"]).equals(encoded(entries).select(["key", "number"]))


def test_only_new_objects_are_encoded() -> None:
    sizes: list[int] = []

    def counted(entries: Mapping[str, Entry]) -> pa.Table:
        sizes.append(len(entries))
        return encoded(entries)

    lasting = LastingTable(counted)
    entries: dict[str, Entry] = {f"k{i}": Entry(7 * i) for i in range(5)}
    lasting.of(entries)
    del entries["k0"]
    entries["new"] = Entry(70)
    assert lasting.of(entries)["key"].to_pylist() == ["k1", "k2", "k3", "k4", "new"]
    assert sizes == [5, 1]
