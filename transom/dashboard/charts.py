"""ECharts options for the chart of a query's windows and the chart of early accuracy.

Colours are CSS variables, so SVG charts follow the theme. The value of a key that begins with a colon is
JavaScript; the functions of the `transom` object are in dashboard.js.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transom.dashboard.chart_points import ChartData, WindowPoint, WindowValue
from transom.dashboard.colors import SERIES
from transom.dashboard.display_text import (
    esc,
    format_clock,
    format_estimate,
    format_number,
    format_percent,
    format_seconds,
    window_label,
)
from transom.dashboard.display_zone import UTC_NAME, display_zone, zone_offset
from transom.estimates.monitor import MarkAccuracy

Options = dict[str, Any]

# Written out because ECharts measures text on a canvas, which inherits no font.
FONT = (
    'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, '
    "sans-serif"
)
_TIMES = {
    "year": "{yyyy}",
    "month": "{d} {MMM}",
    "day": "{d} {MMM}",
    "hour": "{HH}:{mm}",
    "minute": "{HH}:{mm}",
    "second": "{HH}:{mm}:{ss}",
    "millisecond": "{HH}:{mm}:{ss}.{SSS}",
    "none": "{HH}:{mm}:{ss}",
}
_ANIMATION = "!matchMedia('(prefers-reduced-motion: reduce)').matches"
_LABEL = {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT, "hideOverlap": True}


def results_chart(data: ChartData, zoom: tuple[float, float] = (0.0, 100.0)) -> Options:
    """A query's windows: final values as solid points, early values as rings with their intervals.

    The line has gaps where windows are missing. `zoom` is the part of the time axis that is shown, in percent.
    """
    has_groups, limits = len(data.groups) > 1, _interval_limits(data)
    axis = TimeAxis.of(data)
    series = [
        group_series
        for at, (group, points) in enumerate(data.groups.items())
        for group_series in _group_series(
            group, points, f"var(--c{at % SERIES + 1})", data, axis, has_groups, limits
        )
    ]
    start, end = zoom
    return {
        ":animation": _ANIMATION,
        "animationDuration": 200,
        "animationDurationUpdate": 200,
        "useUTC": True,
        "textStyle": {"fontFamily": FONT},
        "grid": {
            "left": 8,
            "right": 24,
            "top": 56 if has_groups else 32,
            "bottom": 34,
            "containLabel": True,
        },
        "legend": {
            "show": has_groups,
            "type": "scroll",
            "left": 8,
            "top": 0,
            "itemGap": 16,
            "itemWidth": 10,
            "itemHeight": 8,
            "icon": "circle",
            "data": list(data.groups),
            "textStyle": {"color": "var(--text)", "fontSize": 12, "fontFamily": FONT},
            "inactiveColor": "var(--edge)",
            "pageIconColor": "var(--muted)",
            "pageIconInactiveColor": "var(--line)",
            "pageTextStyle": {"color": "var(--muted)", "fontFamily": FONT},
        },
        "tooltip": _tooltip(),
        "dataZoom": [
            {"type": "inside", "zoomOnMouseWheel": "ctrl", "preventDefaultMouseMove": False}
            | {"start": start, "end": end},
            _zoom_slider(bool(data.groups)) | {"start": start, "end": end},
        ],
        "xAxis": _axis("time" if data.is_time else "value", False)
        | {"show": bool(data.groups)}
        | axis.label_options(),
        "yAxis": _axis("value", True) | _value_axis(data),
        "series": [*series, *_thresholds(data, axis)],
    }


@dataclass(frozen=True)
class TimeAxis:
    """The horizontal axis. Times are shifted to the user's zone, so that its ticks are at local hours and days."""

    is_time: bool
    zone: str
    offset: int  # microseconds

    @classmethod
    def of(cls, data: ChartData) -> TimeAxis:
        zone, span = display_zone(), data.span
        offset = zone_offset(span[1], zone) if data.is_time and span else 0
        return cls(data.is_time, zone, offset)

    def x(self, end: int) -> float:
        """The place of the end of a window."""
        return (end + self.offset) / 1000 if self.is_time else end

    def label_options(self) -> Options:
        """Labels that are right on both sides of a change of the zone's offset."""
        if not self.is_time or self.zone == UTC_NAME:
            return {}
        formatter = f"transom.timeLabel({json.dumps(self.zone)}, {self.offset // 1000})"
        return {"axisLabel": _LABEL | {":formatter": formatter}}


# A rectangle of 12 by 22 pixels: the handle of ECharts is a thin line, which a pointer misses.
_ZOOM_HANDLE = "path://M0,2a2,2,0,0,1,2,-2h8a2,2,0,0,1,2,2v18a2,2,0,0,1,-2,2h-8a2,2,0,0,1,-2,-2z"


def _zoom_slider(show: bool) -> Options:
    line = {"color": "var(--edge)"}
    area = {"color": "var(--sunken)"}
    return {
        "type": "slider",
        "show": show,
        "height": 16,
        "bottom": 8,
        "left": 44,
        "right": 44,
        "showDetail": False,
        "brushSelect": False,  # dragging between the handles moves the part that is shown
        "handleIcon": _ZOOM_HANDLE,
        "handleSize": 22,
        "borderColor": "var(--line)",
        "fillerColor": "var(--accent-soft)",
        "backgroundColor": "transparent",
        "dataBackground": {"lineStyle": line, "areaStyle": area},
        "selectedDataBackground": {"lineStyle": {"color": "var(--accent)"}, "areaStyle": area},
        "handleStyle": {"color": "var(--surface)", "borderColor": "var(--edge)"},
        "moveHandleSize": 0,
        "emphasis": {"handleStyle": {"color": "var(--surface)", "borderColor": "var(--accent)"}},
    }


def axis_title(data: ChartData) -> str:
    """What the vertical axis shows: the column, its expression and its unit."""
    if data.is_relative:
        return "% of each line's highest value"
    hint = data.hint
    name = data.value if hint.expression in ("", data.value) else f"{data.value} = {hint.expression}"
    name = f"{name[:69]}…" if len(name) > 70 else name
    return f"{name}, in {hint.unit}" if hint.unit else name


def _value_axis(data: ChartData) -> Options:
    title = {
        "name": axis_title(data),
        "nameLocation": "end",
        "nameGap": 10,
        "nameTextStyle": {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT, "align": "left"},
    }
    # Merged into the chart that is there: None removes what an earlier value column has set.
    if data.hint.is_count or (data.is_relative and _value_span(data)[0] >= 0):
        return title | {"scale": False, "min": 0}
    return title | {"scale": True, "min": None}


def _thresholds(data: ChartData, axis: TimeAxis) -> list[Options]:
    """The constants that HAVING compares the value with, as dashed lines."""
    span = data.span
    if span is None or data.is_relative:
        return []
    least, most = _value_span(data)
    margin = 4 * (most - least) or abs(most) or 1.0
    label = {"show": True, "position": "insideEndTop", "color": "var(--warn)", "fontSize": 11}
    return [
        {
            "name": f"HAVING {data.value} {threshold.op} {format_number(threshold.value)}",
            "type": "line",
            "z": 1,
            "symbol": "none",
            "silent": True,
            "lineStyle": {"width": 0},
            "color": "var(--warn)",
            "emphasis": {"disabled": True},
            # Points make the axis reach the line; the line itself crosses the whole chart.
            "data": [[axis.x(end), threshold.value] for end in span],
            "markLine": {
                "silent": True,
                "symbol": "none",
                "animation": False,
                "lineStyle": {"color": "var(--warn)", "width": 1, "type": "dashed"},
                "label": label
                | {
                    "fontFamily": FONT,
                    "formatter": f"HAVING {data.value} {threshold.op} {format_number(threshold.value)}",
                },
                "data": [{"yAxis": threshold.value}],
            },
        }
        for threshold in data.hint.thresholds
        if least - margin <= threshold.value <= most + margin
    ]


def _value_span(data: ChartData) -> tuple[float, float]:
    """The least and the greatest value."""
    drawn = [value.best for points in data.groups.values() for point in points for value in point.values]
    finite = [value for value in drawn if value is not None and abs(value) < float("inf")]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def with_gaps(ends: Sequence[int], slide: int | None) -> list[int | None]:
    """The places of ends of windows, with None between two where windows are missing.

    >>> with_gaps([10, 20, 40, 50], 10), with_gaps([10, 40], None)
    ([0, 1, None, 2, 3], [0, 1])
    """
    places: list[int | None] = []
    for at, end in enumerate(ends):
        # Calendar windows differ in length: months by a tenth, days by an hour.
        if slide is not None and at and end - ends[at - 1] > 1.5 * slide:
            places.append(None)
        places.append(at)
    return places


def _interval_limits(data: ChartData) -> tuple[float, float]:
    """How far intervals may stretch the axis: half the span of the values on each side.

    Without a limit, one wide interval would flatten all values into a line.
    """
    least, most = _value_span(data)
    margin = (most - least) / 2 or abs(most) or 1.0
    return least - margin, most + margin


def _tooltip() -> Options:
    return {
        "trigger": "axis",
        "confine": True,
        "backgroundColor": "var(--surface)",
        "borderColor": "var(--line)",
        "textStyle": {"color": "var(--text)", "fontSize": 12, "fontFamily": FONT},
        "extraCssText": "box-shadow: var(--shadow); border-radius: 6px; padding: 8px 12px;",
        "axisPointer": {"type": "line", "lineStyle": {"color": "var(--edge)", "type": "solid"}},
        "transitionDuration": 0,
        ":formatter": "transom.tooltip",
    }


def _axis(kind: str, split: bool) -> Options:
    number_format: Options = {"formatter": _TIMES} if kind == "time" else {":formatter": "transom.axisLabel"}
    return {
        "type": kind,
        "scale": True,
        "axisLabel": _LABEL | number_format,
        "axisLine": {"show": not split, "onZero": False, "lineStyle": {"color": "var(--edge)"}},
        "axisTick": {"show": not split, "lineStyle": {"color": "var(--edge)"}},
        "splitLine": {"show": split, "lineStyle": {"color": "var(--line)"}},
    }


def _group_series(
    group: str,
    points: Sequence[WindowPoint],
    colour: str,
    data: ChartData,
    axis: TimeAxis,
    has_groups: bool,
    limits: tuple[float, float],
) -> list[Options]:
    """The series of a group; always five, so that ECharts updates the chart in place."""
    least, most = limits
    scale = _relative_scale(points) if data.is_relative else 1.0
    finals = [(point, point.final) for point in points if point.final is not None]
    opens = [(point, point.early) for point in points if point.early is not None and point.final is None]
    both = [(point, point.early, point.final) for point in points if point.early and point.final]
    label = group if has_groups else ""
    slide = data.slides.get(group)
    last_final = [
        [axis.x(point.end), _scaled(final.value, scale)]
        for point, final in finals[-1:]
        if len(with_gaps([point.end, *(each.end for each, _ in opens[:1])], slide)) < 3
    ]
    early_points = [
        _chart_point(point, early, _scaled(early.best, scale), label, axis) for point, early in opens
    ]
    final_points: list[Options] = []
    for place in with_gaps([point.end for point, _ in finals], slide):
        if place is None:  # a point without a value interrupts the line
            final_points.append({"value": [final_points[-1]["value"][0], None]})
            continue
        point, final = finals[place]
        final_points.append(_chart_point(point, final, _scaled(final.value, scale), label, axis))
    base: Options = {"emphasis": {"disabled": True}, "itemStyle": {"color": colour}, "color": colour}
    ring = {"color": "var(--surface)", "borderColor": colour, "borderWidth": 2}
    return [
        base
        | {
            "name": group,
            "type": "line",
            "z": 3,
            "symbol": "circle",
            "symbolSize": 6,
            "showAllSymbol": True,
            "lineStyle": {"width": 1.75, "color": colour},
            "connectNulls": False,
            "data": final_points,
        },
        base
        | {
            "name": f"{group}, open",
            "type": "line",
            "z": 4,
            "symbol": "circle",
            "symbolSize": 9,
            "showAllSymbol": True,
            "lineStyle": {"width": 1.5, "type": "dashed", "color": colour},
            "itemStyle": ring,
            "data": [{"value": start, "symbol": "none"} for start in last_final if early_points]
            + early_points,
        },
        base
        | {
            "name": f"{group}, interval",
            "type": "custom",
            "z": 2,
            ":renderItem": "transom.interval",
            "encode": {"x": 0, "y": [3, 4]},
            "clip": True,
            "data": [
                [axis.x(point.end), early.low, early.high, max(early.low, least), min(early.high, most)]
                for point, early in opens
                if early.low is not None and early.high is not None and not data.is_relative
            ],
        },
        base
        | {
            "name": f"{group}, early to final",
            "type": "custom",
            "z": 2,
            ":renderItem": "transom.earlyToFinal",
            "encode": {"x": 0, "y": [1, 2]},
            "data": [
                [axis.x(point.end), _scaled(early.best, scale), _scaled(final.value, scale)]
                for point, early, final in both
                if early.best is not None and final.value is not None
            ],
        },
        base
        | {
            "name": f"{group}, was early",
            "type": "scatter",
            "z": 2,
            "symbolSize": 6,
            "itemStyle": {
                "color": "var(--surface)",
                "borderColor": colour,
                "borderWidth": 1,
                "opacity": 0.75,
            },
            "data": [
                [axis.x(point.end), _scaled(early.best, scale)]
                for point, early, _ in both
                if early.best is not None
            ],
        },
    ]


def _relative_scale(points: Sequence[WindowPoint]) -> float:
    """The factor that makes a line's greatest value 100."""
    values = [value.best for point in points for value in point.values]
    most = max((abs(value) for value in values if value is not None and value == value), default=0.0)
    return 100 / most if 0 < most < float("inf") else 1.0


def _scaled(value: float | None, scale: float) -> float | None:
    return value if value is None or scale == 1.0 else value * scale


def _chart_point(
    point: WindowPoint, value: WindowValue, drawn: float | None, group: str, axis: TimeAxis
) -> Options:
    return {
        "value": [axis.x(point.end), drawn],
        "head": esc(window_label(point.start, point.end, axis.is_time).replace(" – ", " to ")),
        "tip": _tip(point, value, group),
    }


def _tip(point: WindowPoint, value: WindowValue, group: str) -> str:
    """A point's tooltip: all details if the chart has a single group, else one line per group."""
    if group:
        return f'<dl class="tip"><dt>{esc(group)}</dt><dd>{_one_line(point)}</dd></dl>'
    rows = [("final", format_number(point.final.value))] if point.final else []
    if (early := point.early) is not None:
        rows.append(("early", format_estimate(early.value)))
        if early.projected is not None:
            rows.append(("projected", format_estimate(early.projected)))
        if early.low is not None and early.high is not None:
            rows.append(("interval", f"{format_estimate(early.low)} to {format_estimate(early.high)}"))
    rows += [
        ("rows", format_number(value.rows)),
        ("made", f"{format_clock(value.made)}, batch {format_number(value.batch)}"),
        ("latency", format_seconds(value.latency)),
    ]
    if not value.complete:
        rows.append(("complete", "no"))
    return '<dl class="tip">' + "".join(f"<dt>{k}</dt><dd>{esc(v)}</dd>" for k, v in rows) + "</dl>"


def _one_line(point: WindowPoint) -> str:
    early = point.early
    if point.final is not None:
        before = f", early {format_estimate(early.best)}" if early else ""
        return esc(f"{format_number(point.final.value)} final{before}")
    assert early is not None  # a point has an early or a final value
    interval = ""
    if early.low is not None and early.high is not None:
        interval = f", {format_estimate(early.low)} to {format_estimate(early.high)}"
    so_far = "" if early.projected is None else f" ({format_estimate(early.value)} so far)"
    return esc(f"{format_estimate(early.best)} early{so_far}{interval}")


def accuracy_chart(curve: Sequence[MarkAccuracy], aggressiveness: float | None) -> Options:
    """The accuracy of early results by the point of the slide: one line for projected values, one for unprojected."""
    points = sorted(curve, key=lambda point: point.point)
    lowest = min((part for p in points for part in (p.raw, p.projected) if part == part), default=0.0)
    current = [] if aggressiveness is None else [{"xAxis": round(100 * (1 - aggressiveness), 1)}]

    def line(name: str, values: Sequence[float], colour: str, dashed: bool) -> Options:
        return {
            "name": name,
            "type": "line",
            "symbol": "circle",
            "symbolSize": 5,
            "emphasis": {"disabled": True},
            "color": colour,
            "itemStyle": {
                "color": "var(--surface)" if dashed else colour,
                "borderColor": colour,
                "borderWidth": 1.5,
            },
            "lineStyle": {"width": 2, "color": colour, "type": "dashed" if dashed else "solid"},
            "data": [
                {
                    "value": [round(100 * point.point, 1), round(100 * accuracy, 2)],
                    "head": f"at {format_percent(point.point, 0)} of the slide",
                    "tip": f'<dl class="tip"><dt>{name}</dt><dd>{format_percent(accuracy)}</dd></dl>',
                }
                for point, accuracy in zip(points, values, strict=True)
                if accuracy == accuracy
            ],
        }

    projected = line("projected", [point.projected for point in points], "var(--c1)", False)
    projected["markLine"] = {
        "silent": True,
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": "var(--text)", "width": 1, "type": "solid"},
        "label": {"show": False},
        "data": current,
    }
    return {
        ":animation": _ANIMATION,
        "animationDuration": 200,
        "grid": {"left": 8, "right": 16, "top": 28, "bottom": 22, "containLabel": True},
        "legend": {
            "left": 8,
            "top": 0,
            "itemWidth": 22,
            "itemHeight": 6,
            "textStyle": {"color": "var(--text)", "fontSize": 12, "fontFamily": FONT},
        },
        "tooltip": _tooltip(),
        "xAxis": _axis("value", False)
        | {
            "min": 0,
            "max": 100,
            "scale": False,
            "name": "% of slide",
            "nameLocation": "middle",
            "nameGap": 26,
            "nameTextStyle": {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT},
        },
        "yAxis": _axis("value", True) | {"min": int(100 * lowest) // 10 * 10, "max": 100, "scale": False},
        "series": [projected, line("as received", [point.raw for point in points], "var(--c2)", True)],
    }


def expected_accuracy(curve: Sequence[MarkAccuracy], aggressiveness: float) -> MarkAccuracy | None:
    """The accuracy to expect at an aggressiveness, interpolated between the curve's two nearest points.

    None if no window has been observed that early.

    >>> at = expected_accuracy([MarkAccuracy(0.5, 0.4, 0.8), MarkAccuracy(1.0, 1.0, 1.0)], 0.25)
    >>> at.point, at.raw, at.projected
    (0.75, 0.7, 0.9)
    """
    at = 1 - aggressiveness
    points = sorted((point for point in curve if point.raw == point.raw), key=lambda point: point.point)
    if not points or at < points[0].point - 0.05:
        return None
    low = ([point for point in points if point.point <= at] or points[:1])[-1]
    high = ([point for point in points if point.point >= at] or points[-1:])[0]
    fraction = (at - low.point) / (high.point - low.point) if high.point > low.point else 0.0
    fraction = min(1.0, max(0.0, fraction))
    raw = round(low.raw + (high.raw - low.raw) * fraction, 6)
    projected = round(low.projected + (high.projected - low.projected) * fraction, 6)
    return MarkAccuracy(at, raw, projected)
