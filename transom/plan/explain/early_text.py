"""EXPLAIN of early results, as text."""

from __future__ import annotations

from transom.durations import format_duration
from transom.elements import Emit
from transom.estimates import Accuracy, Score


def emit_text(emit: Emit, accuracy: Accuracy | None, tuned: float | None = None) -> str:
    """When windows are reported early, and how accurate that was; `tuned` is a part of the slide.

    >>> emit_text(Emit(at=(0.5, 0.75)), None)
    'at 50%, 75% of the slide'
    """
    if tuned is not None:
        when = f"at {tuned:.0%} of the slide, as it was tuned"
    elif emit.every is not None:
        when = f"every {format_duration(emit.every)}"
    elif emit.accuracy is not None:
        point = "" if accuracy is None or accuracy.point is None else f", now {accuracy.point:.0%}"
        limits = " and ".join(f"{part:.0%}" for part in emit.between)
        when = f"with accuracy {emit.accuracy:.0%}, between {limits} of the slide{point}"
    else:
        when = f"at {', '.join(f'{part:.0%}' for part in emit.at)} of the slide" if emit.at else "on demand"
    if accuracy is not None and accuracy.decisions is not None:
        when += f"; early decisions so far: {accuracy.decisions}"
    if accuracy is None or not accuracy.total.pairs:
        return when
    compared = [item for item in accuracy.items if item.total.pairs]
    parts = [f"{item.name} {_score_text(item.total)}" for item in compared]
    return f"{when}; accuracy so far {'; '.join(parts) if len(parts) > 1 else _score_text(accuracy.total)}"


def _score_text(score: Score) -> str:
    covered = f", {score.coverage:.1%} of finals within bounds" if score.bounded else ""
    return f"{score.raw:.1%} raw, {score.projected:.1%} projected{covered}"
