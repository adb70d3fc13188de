"""The names under which a checkpoint stores an estimator: independent of the names of Python attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.elements import Emit
from transom.estimates.early_values import ItemKind

# By part of an estimator, the stored name of each array and the attribute that holds it.
STORED_ARRAYS: Mapping[str, Mapping[str, str]] = {
    "groups": {
        "key": "key",
        "last": "last",
        "count": "count",
        "level": "level",
        "recent": "recent",
        "grown": "grown",
        "added": "added",
        "scaled": "scaled",
        "spread": "spread",
        "usual": "usual",
        "paired": "paired",
    },
    "experts": {
        "count": "count",
        "slides_left": "slides_left",
        "early": "early",
        "final": "final",
        "square": "square",
        "cross": "cross",
        "recent_early": "recent_early",
        "recent_final": "recent_final",
        "hour_square": "hour_square",
        "hour_early": "hour_early",
        "hour_final": "hour_final",
        "tested": "tested",
        "loss": "loss",
        "error": "error",
    },
    "bounds": {"scores": "scores", "place": "place", "windows": "windows", "level": "level"},
    "seasons": {
        "last": "last",
        "days": "days",
        "actual": "actual",
        "expected": "expected",
        "scaled": "scaled",
        "error": "error",
        "judged": "judged",
        "recent_actual": "recent_actual",
        "recent_usual": "recent_usual",
        "tested": "tested",
        "loss": "loss",
    },
    "monitor": {
        "total": "total",
        "recent": "recent",
        "windows": "windows",
        "raw": "raw",
        "projected": "projected",
    },
    "tracks": {
        "window": "window",
        "group": "group",
        "margin": "margin",
        "announced": "is_announced",
        "certain": "is_certain",
        "made": "made",
        "slides_left": "slides_left",
    },
    "looks": {
        "window": "window",
        "group": "group",
        "mark": "mark",
        "margin": "margin",
        "spread": "spread",
    },
    "history": {
        "error": "error",
        "error_held": "error_held",
        "error_window": "error_window",
        "margin": "margin",
        "held": "held",
        "window": "window",
    },
    "outcomes": {"total": "total", "recent": "recent"},
    "pending": {
        "group": "group",
        "window": "window",
        "slides_left": "slides_left",
        "made": "made",
        "emitted": "emitted",
        "early": "early",
        "projected": "projected",
        "low": "low",
        "high": "high",
        "items": "items",
    },
}


def encode_arrays(part: str, record: object) -> dict[str, Any]:
    """The arrays of a part of an estimator by their stored names; absent ones are left out."""
    names = {f"{part}.{stored}": attribute for stored, attribute in STORED_ARRAYS[part].items()}
    arrays = {stored: getattr(record, attribute) for stored, attribute in names.items()}
    return {stored: array for stored, array in arrays.items() if array is not None}


def decode_arrays(part: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a part of an estimator by their attributes."""
    names = {f"{part}.{stored}": attribute for stored, attribute in STORED_ARRAYS[part].items()}
    return {attribute: arrays[stored] for stored, attribute in names.items() if stored in arrays}


def encode_emit(emit: Emit) -> dict[str, Any]:
    """The stored form of EMIT EARLY."""
    return {
        "every": emit.every,
        "at": list(emit.at),
        "accuracy": emit.accuracy,
        "between": list(emit.between),
        "confidence": emit.confidence,
        "quality": emit.quality,
    }


def decode_emit(stored: Mapping[str, Any]) -> Emit:
    """The EMIT EARLY clause that `encode_emit` encoded."""
    low, high = stored["between"]
    return Emit(
        every=stored["every"],
        at=tuple(stored["at"]),
        accuracy=stored["accuracy"],
        between=(low, high),
        confidence=stored["confidence"],
        quality=stored["quality"],
    )


def encode_item(item: ItemKind) -> dict[str, Any]:
    """The stored form of an item of the SELECT list, or of HAVING."""
    stored = {"name": item.name, "is_number": item.is_number, "grows": item.grows}
    return stored | {"is_condition": True} if item.is_condition else stored


def decode_item(stored: Mapping[str, Any]) -> ItemKind:
    """The item that `encode_item` encoded."""
    return ItemKind(stored["name"], stored["is_number"], stored["grows"], stored.get("is_condition", False))
