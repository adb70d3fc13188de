"""Which slot a query reads an accumulator from: its own, or one that holds the same and more.

The moments that a variance needs also hold the count and the sum of the same values. Where a selection keeps
them, AVG, SUM and COUNT of its queries need no slots of their own. Sums of integers and decimals do: they are
exact, and moments add up doubles.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from transom.plan.compiled_query import CompiledQuery, Slot


def slots_to_keep(slots: Iterable[Slot]) -> dict[str, Slot]:
    """The slots to keep so that all given ones can be read, by id."""
    wanted = {slot.id: slot for slot in slots}
    return {
        slot_id: slot
        for slot_id, slot in wanted.items()
        if slot.substitute is None or slot.substitute.id not in wanted
    }


def in_layout_order(slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Slots ordered by their accumulators, so that selections with the same accumulators share a sheet."""
    by_id = sorted(slots.items())
    return dict(sorted(by_id, key=lambda item: item[1].accumulator.id, reverse=True))  # sums before counts


def source_slot(slot: Slot, kept_slots: Container[str]) -> Slot | None:
    """The kept slot that a slot is read from: itself or its substitute; None if neither is kept."""
    if slot.id in kept_slots:
        return slot
    substitute = slot.substitute
    return substitute if substitute is not None and substitute.id in kept_slots else None


def source_slots(query: CompiledQuery, kept_slots: Container[str]) -> dict[str, Slot]:
    """The kept slots that a query reads, by id; slots that it can't read are left out."""
    sources = (source_slot(slot, kept_slots) for slot in query.slots)
    return {slot.id: slot for slot in sources if slot is not None}


def is_answered(query: CompiledQuery, kept_slots: Container[str]) -> bool:
    """Whether a query can read all its slots from the kept ones."""
    return all(source_slot(slot, kept_slots) is not None for slot in query.slots)


def readable_slots(queries: Iterable[CompiledQuery]) -> dict[str, Slot]:
    """The slots that queries have or may read instead, by id."""
    readable: dict[str, Slot] = {}
    for query in queries:
        for slot in query.slots:
            readable[slot.id] = slot
            if slot.substitute is not None:
                readable.setdefault(slot.substitute.id, slot.substitute)
    return readable
