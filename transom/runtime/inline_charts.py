"""Small charts in plain SVG for notebooks: lines over time, bars, and a bar cut into parts.

They need no script and no style sheet, and their text has the colour of the notebook's text, light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from transom.texts import cut_text

# Told apart on white and on black, and by people who see fewer colours.
CHART_COLORS = ("#1b8a96", "#d97706", "#8b6fe0", "#d6498a", "#5a9e33", "#4a8be0", "#b08a12", "#7f8996")
CHART_WIDTH, MARGIN, ROW = 480, 8, 18
LINES_HEIGHT = 120
LABEL_LENGTH = 32

Point = tuple[float, float]


def line_chart(series: Mapping[str, Sequence[Point]], label: str, first: str, last: str) -> str:
    """Lines with a legend; `first` and `last` are the texts at both ends of the horizontal axis.

    Points without a finite value leave a gap. Nothing is drawn without any point.

    >>> line_chart({"a": [(0, 1.0), (1, 2.0)]}, "n", "12:00", "12:01").count("<polyline")
    1
    >>> line_chart({"a": [(0, float("nan"))]}, "n", "", "")
    ''
    """
    finite = [point for points in series.values() for point in points if math.isfinite(point[1])]
    if not finite:
        return ""
    (left, right), (low, high) = (
        (min(part), max(part)) for part in ([x for x, _ in finite], [y for _, y in finite])
    )
    top, bottom = MARGIN + 8, LINES_HEIGHT - ROW
    across = (CHART_WIDTH - 2 * MARGIN) / ((right - left) or 1)
    up = (bottom - top) / ((high - low) or 1)

    def placed(point: Point) -> Point:
        y = bottom - (point[1] - low) * up if high > low else (top + bottom) / 2
        return MARGIN + (point[0] - left) * across, y

    parts = [
        _text(MARGIN, MARGIN + 2, _number(high), muted=True),
        _text(MARGIN, LINES_HEIGHT - 4, first, muted=True),
        _text(CHART_WIDTH - MARGIN, LINES_HEIGHT - 4, last, "end", muted=True),
    ]
    if low != high:
        parts.append(_text(MARGIN, bottom - 3, _number(low), muted=True))
    for place, (name, points) in enumerate(series.items()):
        color = CHART_COLORS[place % len(CHART_COLORS)]
        for run in _runs(points):
            parts.append(_line([placed(point) for point in run], color))
        if len(series) > 1:
            parts.append(_legend(place, name, color))
    legend_rows = math.ceil(len(series) / 3) if len(series) > 1 else 0
    return _svg(LINES_HEIGHT + legend_rows * ROW, label, parts)


def bar_chart(bars: Sequence[tuple[str, float]], label: str) -> str:
    """A horizontal bar for each name, with its number.

    >>> bar_chart([("a < b", 3), ("all", 1)], "queries").count("<rect")
    2
    """
    if not bars:
        return ""
    most = max(value for _, value in bars) or 1
    start = CHART_WIDTH // 2
    parts = []
    for place, (name, value) in enumerate(bars):
        y = MARGIN + place * ROW
        width = max(1.0, (CHART_WIDTH - start - 60) * value / most)
        parts.append(_text(start - 6, y + 10, cut_text(name, LABEL_LENGTH), "end"))
        parts.append(_rectangle(start, y, width, CHART_COLORS[0], f"{name}: {_number(value)}"))
        parts.append(_text(start + width + 6, y + 10, _number(value), muted=True))
    return _svg(len(bars) * ROW + 2 * MARGIN, label, parts)


def parts_bar(values: Mapping[str, float], label: str) -> str:
    """One bar, cut into parts by their values, with a legend; parts of nothing are left out.

    >>> parts_bar({"ingest": 0.2, "emit": 0.1, "idle": 0}, "seconds").count("<rect")
    4
    """
    shown = {name: value for name, value in values.items() if value > 0}
    total = sum(shown.values())
    if not shown:
        return ""
    parts, x = [], float(MARGIN)
    for place, (name, value) in enumerate(shown.items()):
        color = CHART_COLORS[place % len(CHART_COLORS)]
        width = (CHART_WIDTH - 2 * MARGIN) * value / total
        parts.append(_rectangle(x, MARGIN, width, color, f"{name}: {_number(value)}"))
        parts.append(_legend(place, f"{name} {_number(value)}", color, MARGIN + ROW))
        x += width
    return _svg(MARGIN + ROW + math.ceil(len(shown) / 3) * ROW + 4, label, parts)


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """The points between those without a finite value."""
    runs: list[list[Point]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _line(points: Sequence[Point], color: str) -> str:
    if len(points) == 1:
        ((x, y),) = points
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _legend(place: int, name: str, color: str, top: int = LINES_HEIGHT) -> str:
    x, y = MARGIN + place % 3 * (CHART_WIDTH - 2 * MARGIN) / 3, top + place // 3 * ROW
    text = cut_text(name, LABEL_LENGTH * 2 // 3)
    return f'<rect x="{x:.1f}" y="{y + 3}" width="10" height="10" fill="{color}"/>' + _text(
        x + 14, y + 12, text
    )


def _rectangle(x: float, y: float, width: float, color: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{color}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", muted: bool = False) -> str:
    opacity = ' opacity="0.7"' if muted else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{opacity}>{escape(text)}</text>'


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{CHART_WIDTH}" height="{height}" '
        f'viewBox="0 0 {CHART_WIDTH} {height}" font-family="sans-serif" font-size="11" fill="currentColor">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def _number(value: float) -> str:
    """A number in few characters.

    >>> _number(1234567), _number(0.12345), _number(3.0), _number(1.5e300)
    ('1,234,567', '0.123', '3', '1.5e+300')
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}"
