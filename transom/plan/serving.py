"""Serving: slots that answer for others, so that these need not be kept.

The moments that a variance is read off hold the count and the sum of the same values: with them in a
selection, AVG, SUM and COUNT of any of its queries keep nothing of their own. Sums of integers and decimals
stay apart: moments add up doubles, and these are added up exactly.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from transom.plan.compiled import CompiledQuery, Slot


def kept(slots: Iterable[Slot]) -> dict[str, Slot]:
    """What must be kept so that all of some slots can be read, by their keys."""
    wanted = {slot.id: slot for slot in slots}
    return {key: slot for key, slot in wanted.items() if slot.server is None or slot.server.id not in wanted}


def source(slot: Slot, kept: Container[str]) -> Slot | None:
    """The slot that one is read off among those kept: itself, or one that serves it; None: it can't be."""
    if slot.id in kept:
        return slot
    server = slot.server
    return server if server is not None and server.id in kept else None


def sources(query: CompiledQuery, kept: Container[str]) -> dict[str, Slot]:
    """The slots that a query reads among those kept, by their keys; those it can't read are left out."""
    found = (source(slot, kept) for slot in query.slots)
    return {slot.id: slot for slot in found if slot is not None}


def is_served(query: CompiledQuery, kept: Container[str]) -> bool:
    """Whether all that a query reads is kept."""
    return all(source(slot, kept) is not None for slot in query.slots)


def known_slots(queries: Iterable[CompiledQuery]) -> dict[str, Slot]:
    """All slots that some queries read or could be served by, by their keys."""
    found: dict[str, Slot] = {}
    for query in queries:
        for slot in query.slots:
            found[slot.id] = slot
            if slot.server is not None:
                found.setdefault(slot.server.id, slot.server)
    return found
