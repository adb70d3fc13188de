"""What a checkpoint calls the parts of an estimator."""

from __future__ import annotations

from dataclasses import fields

import pytest

from transom.elements import Emit
from transom.estimates.conformal_bounds import ConformalBounds
from transom.estimates.decision_history import DecisionHistory
from transom.estimates.decision_score import DecisionTotals
from transom.estimates.early_decisions import Looks, Tracks
from transom.estimates.early_values import ItemKind
from transom.estimates.experts import Experts
from transom.estimates.group_profiles import GroupProfiles
from transom.estimates.monitor import Monitor
from transom.estimates.pending_values import PendingRows
from transom.estimates.seasons import Seasons
from transom.estimates.stored_form import (
    STORED_ARRAYS,
    decode_emit,
    decode_item,
    encode_emit,
    encode_item,
)

PARTS = {
    "groups": GroupProfiles,
    "experts": Experts,
    "bounds": ConformalBounds,
    "seasons": Seasons,
    "monitor": Monitor,
    "pending": PendingRows,
    "tracks": Tracks,
    "looks": Looks,
    "history": DecisionHistory,
    "outcomes": DecisionTotals,
}


# The confidence of the query, and the numbers of queries, which are 0 in the estimator of one.
FOLLOWS = {
    "bounds": {"miss"},
    "groups": {"query"},
    "monitor": {"recent_query"},
    "history": {"promised", "miss"},
}


@pytest.mark.parametrize("part", PARTS)
def test_every_array_has_a_stored_name(part: str) -> None:
    follows = FOLLOWS.get(part, set())
    assert set(STORED_ARRAYS[part].values()) == {field.name for field in fields(PARTS[part])} - follows


def test_the_stored_names_are_these() -> None:
    assert {part: sorted(names) for part, names in STORED_ARRAYS.items()} == {
        "groups": [
            "added", "count", "grown", "key", "last", "level", "paired", "recent", "scaled", "spread", "usual"
        ],
        "experts": [
            "count", "cross", "early", "error", "final", "hour_early", "hour_final", "hour_square", "loss",
            "recent_early", "recent_final", "slides_left", "square", "tested",
        ],
        "bounds": ["level", "place", "scores", "windows"],
        "seasons": [
            "actual", "days", "error", "expected", "judged", "last", "loss", "recent_actual", "recent_usual",
            "scaled", "tested",
        ],
        "monitor": ["projected", "raw", "recent", "total", "windows"],
        "pending": [
            "early", "emitted", "group", "high", "items", "low", "made", "projected", "slides_left", "window"
        ],
        "tracks": ["announced", "certain", "group", "made", "margin", "slides_left", "window"],
        "looks": ["group", "margin", "mark", "spread", "window"],
        "history": ["error", "error_held", "error_window", "held", "margin", "window"],
        "outcomes": ["recent", "total"],
    }  # fmt: skip


def test_emit_early_round_trips() -> None:
    emit = Emit(5, (0.5, 0.75), 0.9, (0.1, 0.9), 0.95, "closeness")
    stored = encode_emit(emit)
    assert stored == {
        "every": 5,
        "at": [0.5, 0.75],
        "accuracy": 0.9,
        "between": [0.1, 0.9],
        "confidence": 0.95,
        "quality": "closeness",
    }
    assert decode_emit(stored) == emit


def test_an_item_round_trips() -> None:
    item = ItemKind("n", True, True)
    assert encode_item(item) == {"name": "n", "is_number": True, "grows": True}
    assert decode_item(encode_item(item)) == item
    condition = ItemKind("condition 0", True, False, is_condition=True)
    assert decode_item(encode_item(condition)) == condition
