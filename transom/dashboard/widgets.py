"""The elements that views are made of: plain HTML with names, in the page's own looks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui
from nicegui.element import Element

from transom.dashboard.formatting import e
from transom.dashboard.icons import icon

Handler = Callable[[], Awaitable[None] | None]


class Panel(Element, component="panel.js"):
    """HTML that is sent when it changes, and changed in place, so that the focus stays where it is."""

    def __init__(self, html: str = "", tag: str = "div", classes: str = "", **attributes: str):
        super().__init__()
        self._props["html"] = html
        self._props["tag"] = tag
        if classes:
            self.classes(classes)
        set_attributes(self, attributes)

    def set(self, html: str) -> None:
        """Show this, if it is not what is shown already."""
        if self._props["html"] != html:
            self._props["html"] = html

    def act(self, handler: Callable[[str, str], Awaitable[None] | None]) -> Panel:
        """Call back with the `data-act` and `data-arg` of what was clicked inside."""
        self.on(
            "click",
            lambda event: handler(*event.args),
            js_handler="(event) => { const found = event.target.closest('[data-act]');"
            " if (found && !found.disabled) emit([found.dataset.act, found.dataset.arg || '']); }",
        )
        return self


def set_attributes(element: Element, attributes: Mapping[str, Any]) -> None:
    """Give an element attributes: `data_testid` is written data-testid; None takes one away."""
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is None:
            element._props.pop(key, None)
        elif element._props.get(key) != value:
            element._props[key] = value


def box(classes: str = "", tag: str = "div", **attributes: Any) -> Element:
    """A container."""
    made = ui.element(tag)
    if classes:
        made.classes(classes)
    set_attributes(made, attributes)
    return made


def button(
    text: str, handler: Handler | None = None, kind: str = "", symbol: str = "", **attributes: Any
) -> Element:
    """A button; with an icon alone, its text is its name."""
    made = box(f"b {kind}", "button", type="button", **attributes)
    bare = "icon" in kind.split()
    if bare:
        set_attributes(made, {"aria_label": text, "title": text})
    with made:
        Panel(
            (icon(symbol) if symbol else "") + ("" if bare else f"<span>{e(text)}</span>"),
            "span",
            "row tight",
        )
    if handler is not None:
        made.on("click", lambda: handler())
    return made


def entry(
    on_input: Callable[[str], Awaitable[None] | None], value: str = "", wait: float = 0.0, **attributes: Any
) -> Panel:
    """A field to type in; calls back with its text, at most once in `wait` seconds.

    It is plain HTML, so that what is typed is the browser's alone, and nothing that the server sends is put
    over it.
    """
    made = Panel(f'<input class="field" value="{e(value)}"{_written(attributes)}>', "span")
    made.on(
        "input",
        lambda event: on_input(str(event.args)),
        js_handler="(event) => emit(event.target.value)",
        throttle=wait,
        leading_events=wait == 0.0,
    )
    return made


def slider_html(value: int, least: int, most: int, step: int, **attributes: Any) -> str:
    """A slider, as HTML."""
    return (
        f'<input type="range" min="{least}" max="{most}" step="{step}" value="{value}"{_written(attributes)}>'
    )


def slider(html: str, moved: Callable[[int], Any], chosen: Callable[[int], Any]) -> Panel:
    """A slider that tells while it is moved, and when it is let go."""
    made = Panel(html)
    for event, handler in (("input", moved), ("change", chosen)):
        made.on(
            event,
            lambda told, handler=handler: handler(int(told.args)),
            js_handler="(event) => emit(event.target.value)",
        )
    return made


def _written(attributes: Mapping[str, Any]) -> str:
    return "".join(f' {name.rstrip("_").replace("_", "-")}="{e(text)}"' for name, text in attributes.items())


def choice(
    label: str,
    options: Sequence[tuple[str, str]],
    value: str,
    handler: Callable[[str], Any],
    **attributes: Any,
) -> Panel:
    """A list to choose from, with its label; calls back with the value that was chosen."""
    made = Panel(
        choice_html(label, options, value, attributes.pop("data_testid", "")), "span", "lab", **attributes
    )
    made.on(
        "change", lambda event: handler(str(event.args)), js_handler="(event) => emit(event.target.value)"
    )
    return made


def choice_html(label: str, options: Sequence[tuple[str, str]], value: str, testid: str = "") -> str:
    chosen = "".join(
        f'<option value="{e(key)}"{" selected" if key == value else ""}>{e(text)}</option>'
        for key, text in options
    )
    return f'<select class="field small" aria-label="{e(label)}" data-testid="{e(testid)}">{chosen}</select>'


def segments(name: str, options: Sequence[tuple[str, str]], value: str) -> str:
    """A few choices side by side, as HTML: the clicks are `data-act=name`."""
    return (
        f'<div class="seg" role="group" aria-label="{e(name)}">'
        + "".join(
            f'<button type="button" data-act="{e(name)}" data-arg="{e(key)}" '
            f'aria-pressed="{"true" if key == value else "false"}">{e(text)}</button>'
            for key, text in options
        )
        + "</div>"
    )


def toast(text: str, kind: str = "") -> None:
    """Say something in passing."""
    ui.run_javascript(f"transom.toast({json.dumps(text)}, {json.dumps(kind)})")


def skeleton(lines: int = 3) -> str:
    """What is shown until there is something to show."""
    widths = (72, 48, 64, 56, 40)
    bars = "".join(
        f'<div class="skeleton" style="width:{widths[n % len(widths)]}%"></div>' for n in range(lines)
    )
    return f'<div aria-busy="true" aria-label="Loading">{bars}</div>'


def empty(symbol: str, head: str, text: str, action: str = "", slim: bool = False) -> str:
    """What is shown where there is nothing; `action` is HTML."""
    classes = "empty slim" if slim else "empty"
    return f'<div class="{classes}">{icon(symbol)}<b>{e(head)}</b><p>{e(text)}</p>{action}</div>'


def tile(name: str, value: str, note: str = "", **attributes: str) -> str:
    """A figure with its name, as HTML."""
    return (
        f'<div class="tile"{_written(attributes)}><dt>{e(name)}</dt><dd title="{e(value)}">{e(value)}</dd>'
        f'<dd class="note" title="{e(note)}">{e(note) or "&nbsp;"}</dd></div>'
    )


def tiles(figures: Sequence[str], classes: str = "") -> str:
    return f'<dl class="tiles {classes}">{"".join(figures)}</dl>'


def tag(text: str, kind: str = "", title: str = "") -> str:
    """A word in a box, as HTML."""
    about = f' title="{e(title)}"' if title else ""
    return f'<span class="tag {kind}"{about}>{e(text)}</span>'
