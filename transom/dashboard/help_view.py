"""The help: the SQL reference and other documents of the project, inside of the dashboard."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import markdown2

from transom.dashboard.display_text import esc
from transom.dashboard.frame import DashboardView
from transom.dashboard.sql_highlight import highlight
from transom.dashboard.widgets import Panel, box
from transom.server.service import Service

DOCUMENTS = Path(__file__).parent / "help"
FIRST_PAGE = "sql"
HELP_PAGES = {  # by the name of the file: its title, and what it is about
    "sql": ("SQL reference", "windows, joins, aggregates, functions"),
    "spark-and-flink": ("Spark and Flink", "what to change in their queries"),
    "semantics": ("Semantics", "windows, time, lateness: what results mean"),
    "early-results": ("Early results", "prods, estimates and bounds"),
    "on-demand": ("On-demand queries", "lookups of any window that ends now"),
    "promising-tuples": ("Preferences", "queries with a budget"),
    "glossary": ("Glossary", "the words of this project"),
}
_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
_SQL_BLOCK = re.compile(r"<pre><code>((?:SELECT|WITH|CREATE)\b.*?)</code></pre>", re.DOTALL)


class HelpView(DashboardView):
    """A page of the help, with the list of pages and its own headings."""

    section = "help"

    def __init__(self, service: Service, page: str):
        super().__init__(service)
        self.page, self.title = page, HELP_PAGES[page][0]

    def build(self) -> None:
        body, headings = help_html(self.page)
        Panel(
            f'<div><h1>{esc(self.title)}</h1><p class="sub help-links">Also: the '
            '<a href="/docs">description of the HTTP API</a> '
            'and the <button type="button" class="link" data-do="keys">keyboard shortcuts</button>.</p></div>',
            classes="head",
        )
        with box("help"):
            Panel(
                _contents_html(self.page, headings),
                "nav",
                "contents",
                aria_label="Help",
                data_testid="help-contents",
            )
            with box("card"):
                Panel(body, "article", "text", data_testid="help-text")


class _Markdown(markdown2.Markdown):
    """Markdown whose headings have the ids that links in the documents use, which are GitHub's."""

    def header_id_from_text(self, text: str, prefix: str, n: int) -> str:
        return heading_id(re.sub(r"<[^>]+>", "", text))


def heading_id(text: str) -> str:
    """The id of a heading, as GitHub makes it.

    >>> heading_id("GROUPING SETS, ROLLUP and CUBE"), heading_id("Spark's form")
    ('grouping-sets-rollup-and-cube', 'sparks-form')
    """
    plain = re.sub(r"&#?\w+;", "", text.replace("`", "")).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def help_html(page: str) -> tuple[str, tuple[tuple[int, str, str], ...]]:
    """A page as HTML, and its headings: their levels, ids and texts."""
    text = (DOCUMENTS / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"\A# .*\n", "", text)
    made: Any = _Markdown(extras=["tables", "fenced-code-blocks", "header-ids", "cuddled-lists"]).convert(
        _plain_fences(text)
    )
    html = _LINK.sub(_link, str(made))
    html = _SQL_BLOCK.sub(
        lambda found: f'<pre class="sql" tabindex="0">{highlight(_unescaped(found[1]).strip())}</pre>', html
    )
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table class="t">').replace(
        "</table>", "</table></div>"
    )
    html = html.replace("<pre>", '<pre tabindex="0">')
    before, opening, rest = html.partition("<h2")
    html = (
        before.replace("<h3", "<h2").replace("</h3>", "</h2>") + opening + rest
    )  # the title is above, as h1
    headings = tuple(
        (int(level), anchor, re.sub(r"<[^>]+>", "", title))
        for level, anchor, title in re.findall(r'<h([23]) id="([^"]*)">(.*?)</h\1>', html, re.DOTALL)
    )
    return html, headings


def _plain_fences(text: str) -> str:
    """Fences without languages: the dashboard has its own highlighting, for SQL."""
    return re.sub(r"^```[a-z]+$", "```", text, flags=re.MULTILINE)


def _unescaped(html: str) -> str:
    return html.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _link(found: re.Match[str]) -> str:
    """A link within the help; a link to a document that is not part of it becomes plain text."""
    target, text = found[1], found[2]
    file, _, anchor = target.partition("#")
    name = Path(file).stem
    if target.startswith("#"):
        return found[0]
    if file.endswith(".md") and name in HELP_PAGES:
        return f'<a href="/help/{name}{f"#{anchor}" if anchor else ""}">{text}</a>'
    return text


def _contents_html(page: str, headings: tuple[tuple[int, str, str], ...]) -> str:
    parts = []
    for name, (title, about) in HELP_PAGES.items():
        current = ' aria-current="page"' if name == page else ""
        parts.append(f'<li><a href="/help/{name}" title="{esc(about)}"{current}>{esc(title)}</a>')
        if name == page:
            inner = "".join(
                f'<li class="level-{level}"><a href="#{esc(anchor)}">{esc(_unescaped(text))}</a></li>'
                for level, anchor, text in headings
            )
            parts.append(f"<ul>{inner}</ul>")
        parts.append("</li>")
    return f"<ul>{''.join(parts)}</ul>"
