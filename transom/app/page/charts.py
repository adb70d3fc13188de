"""Charts: options for ECharts, and small drawings that are plain SVG.

Colours are CSS variables, which drawings in SVG follow when the theme changes. A key that begins with a
colon is JavaScript.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.app.page.marks import Drawn, Mark, Reading
from transom.app.page.tokens import SERIES
from transom.app.page.words import clock, e, instant, number, percent, seconds
from transom.estimates.monitor import Mark as Point

Options = dict[str, Any]

# From [x, low, high]: a soft bar with a cap at each end.
_INTERVAL = """(params, api) => {
  const colour = api.visual('color'), half = 5;
  const [x, low] = api.coord([api.value(0), api.value(1)]), high = api.coord([api.value(0), api.value(2)])[1];
  const line = (y) => ({type: 'line', shape: {x1: x - half, y1: y, x2: x + half, y2: y}, style: {stroke: colour, lineWidth: 1.5}});
  return {type: 'group', children: [
    {type: 'rect', shape: {x: x - half, y: high, width: 2 * half, height: low - high}, style: {fill: colour, opacity: 0.16}},
    line(low), line(high)]};
}"""
# From [x, early, final]: what was told, led to what came.
_BECAME = """(params, api) => {
  const colour = api.visual('color');
  const [x, y1] = api.coord([api.value(0), api.value(1)]), y2 = api.coord([api.value(0), api.value(2)])[1];
  return {type: 'line', shape: {x1: x, y1, x2: x, y2}, style: {stroke: colour, lineWidth: 1, lineDash: [2, 2], opacity: 0.7}};
}"""
_TOOLTIP = """(all) => {
  const tips = all.map((one) => one.data && one.data.tip).filter(Boolean);
  const head = all.map((one) => one.data && one.data.head).find(Boolean);
  return tips.length ? '<b>' + head + '</b>' + tips.join('') : '';
}"""
# Named in full: text is measured on a canvas, which inherits nothing.
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
_CALM = "!matchMedia('(prefers-reduced-motion: reduce)').matches"
_LABEL = {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT, "hideOverlap": True}
_PLAIN_NUMBER = "(v) => Math.abs(v) >= 1e4 ? Intl.NumberFormat('en', {notation: 'compact'}).format(v) : v.toLocaleString('en')"


def results_chart(drawn: Drawn) -> Options:
    """A query's windows: finals solid, early estimates hollow with their intervals, joined to what came."""
    many = len(drawn.groups) > 1
    series = [
        one
        for at, (group, marks) in enumerate(drawn.groups.items())
        for one in _group(group, marks, f"var(--c{at % SERIES + 1})", drawn.is_time, many)
    ]
    return {
        ":animation": _CALM,
        "animationDuration": 200,
        "animationDurationUpdate": 200,
        "useUTC": True,
        "textStyle": {"fontFamily": FONT},
        "grid": {"left": 8, "right": 24, "top": 36 if many else 20, "bottom": 4, "containLabel": True},
        "legend": {
            "show": many,
            "type": "scroll",
            "left": 8,
            "top": 0,
            "itemWidth": 14,
            "itemHeight": 8,
            "icon": "circle",
            "data": list(drawn.groups),
            "textStyle": {"color": "var(--text)", "fontSize": 12, "fontFamily": FONT},
            "inactiveColor": "var(--edge)",
        },
        "tooltip": _tooltip(),
        "xAxis": _axis("time" if drawn.is_time else "value", False),
        "yAxis": _axis("value", True),
        "series": series,
    }


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
        ":formatter": _TOOLTIP,
    }


def _axis(kind: str, split: bool) -> Options:
    number_format: Options = {"formatter": _TIMES} if kind == "time" else {":formatter": _PLAIN_NUMBER}
    return {
        "type": kind,
        "scale": True,
        "axisLabel": _LABEL | number_format,
        "axisLine": {"show": not split, "onZero": False, "lineStyle": {"color": "var(--edge)"}},
        "axisTick": {"show": not split, "lineStyle": {"color": "var(--edge)"}},
        "splitLine": {"show": split, "lineStyle": {"color": "var(--line)"}},
    }


def _group(group: str, marks: Sequence[Mark], colour: str, is_time: bool, many: bool) -> list[Options]:
    """Five series, always, so that a chart is changed in place: the line, the early ones and what becomes."""
    finals = [(mark, mark.final) for mark in marks if mark.final is not None]
    opens = [(mark, mark.early) for mark in marks if mark.early is not None and mark.final is None]
    both = [(mark, mark.early, mark.final) for mark in marks if mark.early and mark.final]
    shown = group if many else ""
    last = [[_x(mark.end, is_time), mark_value.value] for mark, mark_value in finals[-1:]]
    early_points = [_point(mark, early, early.best, shown, is_time) for mark, early in opens]
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
            "data": [_point(mark, final, final.value, shown, is_time) for mark, final in finals],
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
            "data": [{"value": point, "symbol": "none"} for point in last if early_points] + early_points,
        },
        base
        | {
            "name": f"{group}, interval",
            "type": "custom",
            "z": 2,
            ":renderItem": _INTERVAL,
            "encode": {"x": 0, "y": [1, 2]},
            "data": [
                [_x(mark.end, is_time), early.low, early.high]
                for mark, early in opens
                if early.low is not None and early.high is not None
            ],
        },
        base
        | {
            "name": f"{group}, became",
            "type": "custom",
            "z": 2,
            ":renderItem": _BECAME,
            "encode": {"x": 0, "y": [1, 2]},
            "data": [
                [_x(mark.end, is_time), early.best, final.value]
                for mark, early, final in both
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
                [_x(mark.end, is_time), early.best] for mark, early, _ in both if early.best is not None
            ],
        },
    ]


def _x(end: int, is_time: bool) -> float:
    return end / 1000 if is_time else end


def _point(mark: Mark, reading: Reading, value: float | None, group: str, is_time: bool) -> Options:
    window = f"{instant(mark.start, is_time)} to {instant(mark.end, is_time)[-8 if is_time else 0 :]}"
    return {
        "value": [_x(mark.end, is_time), value],
        "head": window,
        "tip": _tip(mark, reading, group),
    }


def _tip(mark: Mark, reading: Reading, group: str) -> str:
    rows = [("final", number(mark.final.value))] if mark.final else []
    if (early := mark.early) is not None:
        rows.append(("early", number(early.value)))
        if early.projected is not None:
            rows.append(("projected", number(early.projected)))
        if early.low is not None and early.high is not None:
            rows.append(("interval", f"{number(early.low)} to {number(early.high)}"))
    rows += [
        ("rows", number(reading.rows)),
        ("made", f"{clock(reading.made)}, page {number(reading.page)}"),
        ("latency", seconds(reading.latency)),
    ]
    if not reading.complete:
        rows.append(("complete", "no"))
    head = f'<div class="tip-group">{e(group)}</div>' if group else ""
    return head + '<dl class="tip">' + "".join(f"<dt>{k}</dt><dd>{e(v)}</dd>" for k, v in rows) + "</dl>"


def accuracy_chart(curve: Sequence[Point], aggressiveness: float | None, confidence: float) -> Options:
    """How accurate early results are by aggressiveness: what had arrived, and what was projected."""
    points = sorted(curve, key=lambda one: -one.point)
    lowest = min((part for p in points for part in (p.raw, p.projected) if part == part), default=0.0)
    here = [] if aggressiveness is None else [{"xAxis": round(100 * aggressiveness, 1)}]

    def line(name: str, values: Sequence[float], colour: str, dashed: bool) -> Options:
        return {
            "name": name,
            "type": "line",
            "symbol": "circle" if not dashed else "emptyCircle",
            "symbolSize": 4,
            "emphasis": {"disabled": True},
            "color": colour,
            "itemStyle": {"color": colour},
            "lineStyle": {"width": 2, "color": colour, "type": "dashed" if dashed else "solid"},
            "data": [
                {
                    "value": [round(100 * (1 - one.point), 1), round(100 * part, 2)],
                    "head": f"at {percent(1 - one.point, 0)}",
                    "tip": f'<dl class="tip"><dt>{name}</dt><dd>{percent(part)}</dd></dl>',
                }
                for one, part in zip(points, values, strict=True)
                if part == part
            ],
        }

    projected = line("projected", [one.projected for one in points], "var(--c1)", False)
    projected["markLine"] = {
        "silent": True,
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": "var(--text)", "width": 1, "type": "solid"},
        "label": {"show": False},
        "data": here,
    }
    return {
        ":animation": _CALM,
        "animationDuration": 200,
        "grid": {"left": 8, "right": 16, "top": 28, "bottom": 22, "containLabel": True},
        "legend": {
            "left": 8,
            "top": 0,
            "itemWidth": 22,
            "textStyle": {"color": "var(--text)", "fontSize": 12, "fontFamily": FONT},
        },
        "tooltip": _tooltip(),
        "xAxis": _axis("value", False)
        | {
            "min": 0,
            "max": 100,
            "scale": False,
            "name": "aggressiveness, %",
            "nameLocation": "middle",
            "nameGap": 26,
            "nameTextStyle": {"color": "var(--muted)", "fontSize": 11, "fontFamily": FONT},
        },
        "yAxis": _axis("value", True) | {"min": int(100 * lowest) // 10 * 10, "max": 100, "scale": False},
        "series": [projected, line("as arrived", [one.raw for one in points], "var(--c2)", True)],
    }


def sparkline(values: Sequence[float], width: int = 96, height: int = 24, label: str = "") -> str:
    """Some numbers as a small line; the last one is a dot.

    >>> sparkline([]).count("polyline"), sparkline([1, 2, 3]).count("polyline")
    (0, 1)
    """
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    about = f'role="img" aria-label="{e(label)}"' if label else 'aria-hidden="true"'
    head = f'<svg class="spark" {about} width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
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
    """An interval among others, drawn small: a line with caps, and a dot for the value."""
    span = (most - least) or 1.0
    x1, x2 = (4 + 88 * (one - least) / span for one in (low, high))
    caps = "".join(f'<path d="M{x:.1f} 3v10" stroke="currentColor" stroke-width="1.5"/>' for x in (x1, x2))
    at = (
        ""
        if value is None
        else f'<circle cx="{4 + 88 * (value - least) / span:.1f}" cy="8" r="2.5" fill="currentColor"/>'
    )
    return (
        '<svg class="interval" width="96" height="16" aria-hidden="true"><path d="M4 8h88" stroke="var(--line)"/>'
        f'<path d="M{x1:.1f} 8H{x2:.1f}" stroke="currentColor" stroke-width="1.5"/>{caps}{at}</svg>'
    )


def expected(curve: Sequence[Point], aggressiveness: float) -> Point | None:
    """What accuracy is to be expected there: between the two nearest points of the curve.

    >>> expected([Point(0.5, 0.4, 0.8), Point(1.0, 1.0, 1.0)], 0.25)
    Mark(point=0.75, raw=0.7, projected=0.9)
    """
    at = 1 - aggressiveness
    known = sorted((one for one in curve if one.raw == one.raw), key=lambda one: one.point)
    if not known or at < known[0].point - 0.05:
        return None
    below = [one for one in known if one.point <= at][-1:] or known[:1]
    above = [one for one in known if one.point >= at][:1] or known[-1:]
    (low,), (high,) = below, above
    part = (at - low.point) / (high.point - low.point) if high.point > low.point else 0.0
    part = min(1.0, max(0.0, part))
    raw, projected = (
        round(one + (other - one) * part, 6)
        for one, other in ((low.raw, high.raw), (low.projected, high.projected))
    )
    return Point(at, raw, projected)
