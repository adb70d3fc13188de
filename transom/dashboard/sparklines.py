"""Small charts in plain SVG: sparklines and interval bars."""

from __future__ import annotations

from collections.abc import Sequence

from transom.dashboard.display_text import esc


def sparkline(values: Sequence[float], width: int = 96, height: int = 24, label: str = "") -> str:
    """A line of numbers without axes; a dot marks the last one.

    >>> sparkline([]).count("polyline"), sparkline([1, 2, 3]).count("polyline")
    (0, 1)
    """
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    accessibility = f'role="img" aria-label="{esc(label)}"' if label else 'aria-hidden="true"'
    head = f'<svg class="spark" {accessibility} width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    if not finite:
        return f'{head}<line class="none" x1="2" x2="{width - 2}" y1="{height - 4}" y2="{height - 4}"/></svg>'
    low, high = min(finite), max(finite)
    scale = (height - 8) / (high - low) if high > low else 0.0
    step = (width - 8) / max(1, len(finite) - 1)
    points = [
        (4 + at * step, (height - 4 - (value - low) * scale) if scale else height / 2)
        for at, value in enumerate(finite)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return f'{head}<polyline points="{line}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'


def interval_bar(low: float, high: float, value: float | None, least: float, most: float) -> str:
    """An interval on a scale from `least` to `most`: a line with caps, and a dot at the value."""
    span = (most - least) or 1.0
    x1, x2 = (4 + 88 * (bound - least) / span for bound in (low, high))
    caps = "".join(f'<path d="M{x:.1f} 3v10" stroke="currentColor" stroke-width="1.5"/>' for x in (x1, x2))
    dot = (
        ""
        if value is None
        else f'<circle cx="{4 + 88 * (value - least) / span:.1f}" cy="8" r="2.5" fill="currentColor"/>'
    )
    return (
        '<svg class="interval" width="96" height="16" aria-hidden="true"><path d="M4 8h88" '
        'stroke="var(--line)"/>'
        f'<path d="M{x1:.1f} 8H{x2:.1f}" stroke="currentColor" stroke-width="1.5"/>{caps}{dot}</svg>'
    )
