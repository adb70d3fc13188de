"""The elements that views are built from: plain HTML in the dashboard's own style."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nicegui import ui
from nicegui.element import Element

from transom.dashboard.display_text import esc
from transom.dashboard.icons import icon

Handler = Callable[[], Awaitable[None] | None]


class Panel(Element, component="panel.js"):
    """An element with HTML content that the browser updates in place, so that the focus stays."""

    def __init__(self, html: str = "", tag: str = "div", classes: str = "", **attributes: str):
        super().__init__()
        self._props["html"] = html
        self._props["tag"] = tag
        if classes:
            self.classes(classes)
        set_attributes(self, attributes)

    def set(self, html: str) -> None:
        """Replace the content, if it differs."""
        if self._props["html"] != html:
            self._props["html"] = html

    def on_action(self, handler: Callable[[str, str], Awaitable[None] | None]) -> Panel:
        """Call the handler with the `data-act` and `data-arg` attributes of a clicked element inside."""
        self.on(
            "click",
            lambda event: handler(*event.args),
            js_handler="(event) => { const target = event.target.closest('[data-act]');"
            " if (target && !target.disabled) emit([target.dataset.act, target.dataset.arg || '']); }",
        )
        return self


def set_attributes(element: Element, attributes: Mapping[str, Any]) -> None:
    """Set HTML attributes; `data_testid` becomes data-testid, and None removes an attribute."""
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is None:
            element._props.pop(key, None)
        elif element._props.get(key) != value:
            element._props[key] = value


def box(classes: str = "", tag: str = "div", **attributes: Any) -> Element:
    """A container."""
    element = ui.element(tag)
    if classes:
        element.classes(classes)
    set_attributes(element, attributes)
    return element


def button(
    text: str, handler: Handler | None = None, kind: str = "", symbol: str = "", **attributes: Any
) -> Element:
    """A button; if it has only an icon, the text becomes its accessible name."""
    element = box(f"b {kind}", "button", type="button", **attributes)
    icon_only = "icon" in kind.split()
    if icon_only:
        set_attributes(element, {"aria_label": text, "title": text})
    with element:
        Panel(
            (icon(symbol) if symbol else "") + ("" if icon_only else f"<span>{esc(text)}</span>"),
            "span",
            "row tight",
        )
    if handler is not None:
        element.on("click", lambda: handler())
    return element


def text_field(
    on_input: Callable[[str], Awaitable[None] | None], value: str = "", wait: float = 0.0, **attributes: Any
) -> Panel:
    """A text field; calls `on_input` with its text, at most once in `wait` seconds.

    It is a plain input element, so the server never overwrites what the user types.
    """
    field = Panel(f'<input class="field" value="{esc(value)}"{_attributes_html(attributes)}>', "span")
    field.on(
        "input",
        lambda event: on_input(str(event.args)),
        js_handler="(event) => emit(event.target.value)",
        throttle=wait,
        leading_events=wait == 0.0,
    )
    return field


def slider_html(value: int, least: int, most: int, step: int, **attributes: Any) -> str:
    """The HTML of a slider."""
    return (
        f'<input type="range" min="{least}" max="{most}" step="{step}" value="{value}"'
        f"{_attributes_html(attributes)}>"
    )


def slider(html: str, on_drag: Callable[[int], Any], on_release: Callable[[int], Any]) -> Panel:
    """A slider that calls back while it is dragged, and when it is released."""
    panel = Panel(html)
    for name, handler in (("input", on_drag), ("change", on_release)):
        panel.on(
            name,
            lambda event, handler=handler: handler(int(event.args)),
            js_handler="(event) => emit(event.target.value)",
        )
    return panel


def _attributes_html(attributes: Mapping[str, Any]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{esc(text)}"' for name, text in attributes.items()
    )


def select_field(
    label: str,
    options: Sequence[tuple[str, str]],
    value: str,
    handler: Callable[[str], Any],
    **attributes: Any,
) -> Panel:
    """A drop-down list; calls the handler with the selected value."""
    panel = Panel(
        _select_html(label, options, value, attributes.pop("data_testid", "")), "span", "lab", **attributes
    )
    panel.on(
        "change", lambda event: handler(str(event.args)), js_handler="(event) => emit(event.target.value)"
    )
    return panel


def _select_html(label: str, options: Sequence[tuple[str, str]], value: str, testid: str = "") -> str:
    items = "".join(
        f'<option value="{esc(key)}"{" selected" if key == value else ""}>{esc(text)}</option>'
        for key, text in options
    )
    return (
        f'<select class="field small" aria-label="{esc(label)}" data-testid="{esc(testid)}">{items}</select>'
    )


def segments(name: str, options: Sequence[tuple[str, str]], value: str) -> str:
    """The HTML of a segmented control; a click is the action `name`."""
    return (
        f'<div class="seg" role="group" aria-label="{esc(name)}">'
        + "".join(
            f'<button type="button" data-act="{esc(name)}" data-arg="{esc(key)}" '
            f'aria-pressed="{"true" if key == value else "false"}">{esc(text)}</button>'
            for key, text in options
        )
        + "</div>"
    )


def pager(page: int, pages: int) -> str:
    """The buttons that lead to other pages of a table, as actions `page`; nothing if there is one page."""
    if pages == 1:
        return ""

    def page_button(to: int, text: str) -> str:
        disabled = " disabled" if not 1 <= to <= pages else ""
        return (
            f'<button type="button" class="b small" data-act="page" data-arg="{to}" '
            f'data-testid="page-{text.casefold()}"{disabled}>{text}</button>'
        )

    return (
        '<div class="row apart pad" style="padding:8px 16px;border-top:1px solid var(--line)">'
        f'<span class="small muted">Page {page} of {pages}</span>'
        f'<span class="row tight">{page_button(page - 1, "Previous")}{page_button(page + 1, "Next")}</span>'
        "</div>"
    )


def sort_heading(key: str, name: str, css: str, sort: str | None, testid: str) -> str:
    """The heading of a column: a button, as the action `sort`, if it has a key and the table has a sort key.

    A sort key with a minus sorts in descending order; it may be empty.
    """
    if sort is None or not key:
        return f'<th scope="col" class="{css}">{esc(name)}</th>'
    is_sorted = sort.removeprefix("-") == key
    descending = sort.startswith("-")
    aria_sort = f' aria-sort="{"descending" if descending else "ascending"}"' if is_sorted else ""
    arrow = f'<span aria-hidden="true">{"↓" if descending else "↑"}</span>' if is_sorted else ""
    next_sort = f"-{key}" if is_sorted and not descending else key
    return (
        f'<th scope="col" class="{css}"{aria_sort}><button type="button" data-act="sort" data-arg="{next_sort}" '
        f'data-testid="{esc(testid)}">{esc(name)}{arrow}</button></th>'
    )


def toast(text: str, kind: str = "") -> None:
    """Show a message that disappears by itself."""
    ui.run_javascript(f"transom.toast({json.dumps(text)}, {json.dumps(kind)})")


def skeleton(lines: int = 3) -> str:
    """The placeholder that is shown while data loads."""
    widths = (72, 48, 64, 56, 40)
    bars = "".join(
        f'<div class="skeleton" style="width:{widths[n % len(widths)]}%"></div>' for n in range(lines)
    )
    return f'<div aria-busy="true" aria-label="Loading">{bars}</div>'


def empty_state(symbol: str, head: str, text: str, action: str = "", slim: bool = False) -> str:
    """The HTML of an empty view or table: an icon, a heading, a text, and optionally a link or button."""
    classes = "empty slim" if slim else "empty"
    return f'<div class="{classes}">{icon(symbol)}<b>{esc(head)}</b><p>{esc(text)}</p>{action}</div>'


def tile(name: str, value: str, note: str = "", **attributes: str) -> str:
    """The HTML of a figure with its name and a note."""
    return (
        f'<div class="tile"{_attributes_html(attributes)}><dt>{esc(name)}</dt>'
        f'<dd title="{esc(value)}">{esc(value)}</dd>'
        f'<dd class="note" title="{esc(note)}">{esc(note) or "&nbsp;"}</dd></div>'
    )


def tiles(figures: Sequence[str], classes: str = "") -> str:
    """The HTML of a row of tiles."""
    return f'<dl class="tiles {classes}">{"".join(figures)}</dl>'


def tag(text: str, kind: str = "", title: str = "") -> str:
    """The HTML of a tag: a word with a border."""
    tooltip = f' title="{esc(title)}"' if title else ""
    return f'<span class="tag {kind}"{tooltip}>{esc(text)}</span>'


def table_html(headings: Sequence[str], rows: str) -> str:
    """A table around rows that are HTML; a heading that begins with # is that of numbers, > hides it on a phone.

    >>> table_html(["Name", "#Rows"], "<tr></tr>").count("<th ")
    2
    """
    classes = {"#": ' class="num"', ">": ' class="wide-only"'}
    heads = "".join(
        f'<th scope="col"{classes.get(name[:1], "")}>{esc(name[1:] if name[:1] in classes else name)}</th>'
        for name in headings
    )
    table = f'<table class="t"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll" tabindex="0">{table}</div>'
