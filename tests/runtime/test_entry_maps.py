"""Maps of registered queries: after any changes they are what they would be if they were made anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.runtime.entry_maps import MOST_CHANGES, Change, EntryMaps

CHANGES = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(("put", "remove", "clear", "read", "copy")))
)
VALUES = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1)


def odd(entry: int | None) -> int | None:
    return entry if entry is not None and entry % 2 else None


def same(entry: int | None) -> int | None:
    return entry


@given(CHANGES, VALUES)
def test_maps_follow_changes_in_the_order_of_the_entries(changes, values):
    maps: EntryMaps[int | None] = EntryMaps()
    entries: dict[str, int | None] = {}

    def check() -> None:
        for what, value in (("odd", odd), ("same", same)):
            anew = {name: value(entry) for name, entry in entries.items() if value(entry) is not None}
            made = maps.of(what, entries, value)
            assert list(made.items()) == list(anew.items())
            assert maps.of(what, entries, value) is made  # the same object while nothing changes

    for number, (name, change) in enumerate(changes):
        if change == "put":
            maps.note(name, Change.CHANGED if name in entries else Change.ADDED)
            entries[name] = values[number % len(values)]
        elif change == "remove":
            entries.pop(name, None)
            maps.note(name, Change.REMOVED)
        elif change == "clear":
            entries = dict(reversed(entries.items()))
            maps.clear()
        elif change == "copy":
            maps.copy().note(name, Change.REMOVED)  # which does not change the original
        else:
            check()
    check()


def test_a_map_that_was_read_before_does_not_change():
    maps: EntryMaps[int | None] = EntryMaps()
    before = maps.of("same", {"a": 1}, same)
    maps.note("b", Change.ADDED)
    assert maps.of("same", {"a": 1, "b": 2}, same) == {"a": 1, "b": 2}
    assert before == {"a": 1}


def test_only_entries_that_changed_are_read():
    read: list[int | None] = []

    def value(entry: int | None) -> int | None:
        read.append(entry)
        return entry

    maps: EntryMaps[int | None] = EntryMaps()
    entries: dict[str, int | None] = dict.fromkeys("abc", 1)
    maps.of("read", entries, value)
    entries["d"] = 2
    maps.note("d", Change.ADDED)
    read.clear()
    assert maps.of("read", entries, value) == entries
    assert read == [2]


def test_the_list_of_changes_is_bounded():
    maps: EntryMaps[int | None] = EntryMaps()
    maps.of("same", {"a": 1}, same)
    for _ in range(2 * MOST_CHANGES):
        maps.note("a", Change.CHANGED)
    assert maps.of("same", {"a": 2}, same) == {"a": 2}
    assert len(maps._changes) <= MOST_CHANGES
