"""Charts: options for ECharts, and small drawings that are plain SVG.

Colours are CSS variables, which drawings in SVG follow when the theme changes. A key that begins with a
colon is JavaScript; the functions of `transom` are in page.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.dashboard.chart_points import Drawn, Mark, Reading
from transom.dashboard.colors import SERIES
from transom.dashboard.formatting import about, clock, e, instant, number, percent, seconds
from transom.estimates.monitor import Mark as Point

Options = dict[str, Any]

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


def results_chart(drawn: Drawn) -> Options:
    """A query's windows: finals solid, early estimates hollow with their intervals, joined to what came."""
    many, reach = len(drawn.groups) > 1, _reach(drawn)
    series = [
        one
        for at, (group, marks) in enumerate(drawn.groups.items())
        for one in _group(group, marks, f"var(--c{at % SERIES + 1})", drawn.is_time, many, reach)
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
        "xAxis": _axis("time" if drawn.is_time else "value", False) | {"show": bool(drawn.groups)},
        "yAxis": _axis("value", True),
        "series": series,
    }


def _reach(drawn: Drawn) -> tuple[float, float]:
    """How far the axis goes for an interval: half of what the values span, and the rest of it is cut off.

    Otherwise the first wide one would make the values a flat line.
    """
    told = [reading.best for marks in drawn.groups.values() for mark in marks for reading in mark.readings]
    known = [value for value in told if value is not None and abs(value) < float("inf")]
    if not known:
        return 0.0, 0.0
    least, most = min(known), max(known)
    more = (most - least) / 2 or abs(most) or 1.0
    return least - more, most + more


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
    number_format: Options = {"formatter": _TIMES} if kind == "time" else {":formatter": "transom.figure"}
    return {
        "type": kind,
        "scale": True,
        "axisLabel": _LABEL | number_format,
        "axisLine": {"show": not split, "onZero": False, "lineStyle": {"color": "var(--edge)"}},
        "axisTick": {"show": not split, "lineStyle": {"color": "var(--edge)"}},
        "splitLine": {"show": split, "lineStyle": {"color": "var(--line)"}},
    }


def _group(
    group: str, marks: Sequence[Mark], colour: str, is_time: bool, many: bool, reach: tuple[float, float]
) -> list[Options]:
    """Five series, always, so that a chart is changed in place: the line, the early ones and what becomes."""
    least, most = reach
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
            ":renderItem": "transom.interval",
            "encode": {"x": 0, "y": [3, 4]},
            "clip": True,
            "data": [
                [_x(mark.end, is_time), early.low, early.high, max(early.low, least), min(early.high, most)]
                for mark, early in opens
                if early.low is not None and early.high is not None
            ],
        },
        base
        | {
            "name": f"{group}, became",
            "type": "custom",
            "z": 2,
            ":renderItem": "transom.became",
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
    """What is said of a mark where the pointer is: of one group everything, of several a line each."""
    if group:
        return f'<dl class="tip"><dt>{e(group)}</dt><dd>{_in_short(mark)}</dd></dl>'
    rows = [("final", number(mark.final.value))] if mark.final else []
    if (early := mark.early) is not None:
        rows.append(("early", about(early.value)))
        if early.projected is not None:
            rows.append(("projected", about(early.projected)))
        if early.low is not None and early.high is not None:
            rows.append(("interval", f"{about(early.low)} to {about(early.high)}"))
    rows += [
        ("rows", number(reading.rows)),
        ("made", f"{clock(reading.made)}, page {number(reading.page)}"),
        ("latency", seconds(reading.latency)),
    ]
    if not reading.complete:
        rows.append(("complete", "no"))
    return '<dl class="tip">' + "".join(f"<dt>{k}</dt><dd>{e(v)}</dd>" for k, v in rows) + "</dl>"


def _in_short(mark: Mark) -> str:
    early = mark.early
    if mark.final is not None:
        told = f", early {about(early.best)}" if early else ""
        return e(f"{number(mark.final.value)} final{told}")
    assert early is not None  # a mark is of one or the other
    sure = "" if early.low is None or early.high is None else f", {about(early.low)} to {about(early.high)}"
    so_far = "" if early.projected is None else f" ({about(early.value)} so far)"
    return e(f"{about(early.best)} early{so_far}{sure}")


def accuracy_chart(curve: Sequence[Point], aggressiveness: float | None, confidence: float) -> Options:
    """How accurate early results are by aggressiveness: what had arrived, and what was projected."""
    points = sorted(curve, key=lambda one: -one.point)
    lowest = min((part for p in points for part in (p.raw, p.projected) if part == part), default=0.0)
    here = [] if aggressiveness is None else [{"xAxis": round(100 * aggressiveness, 1)}]

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
            "itemHeight": 6,
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
