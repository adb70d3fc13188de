"""Orders in which a batch can have results of one window and group, and what holds after them."""

from __future__ import annotations

ORDERS: list[tuple[list[str], list[str], str | None]] = [
    # kinds, those without replaced retractions, and the kind of the result that holds
    (["early", "final"], ["early", "final"], "final"),
    (["final", "early"], ["final", "early"], "final"),
    (["early", "early"], ["early", "early"], "early"),
    (["retraction"], ["retraction"], None),
    (["retraction", "correction"], ["correction"], "correction"),
    (["final", "retraction"], ["final", "retraction"], None),
    (["early", "final", "retraction"], ["early", "final", "retraction"], None),
    (["final", "retraction", "early"], ["final", "retraction", "early"], None),
    (["final", "retraction", "correction"], ["final", "correction"], "correction"),
    (
        ["final", "retraction", "correction", "retraction"],
        ["final", "correction", "retraction"],
        None,
    ),
    (
        ["final", "retraction", "correction", "retraction", "correction"],
        ["final", "correction", "correction"],
        "correction",
    ),
    (["correction", "retraction"], ["correction", "retraction"], None),
]
