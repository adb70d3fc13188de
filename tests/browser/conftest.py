"""A real browser for the tests of the page: one for all, a page and a server for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.browsing import PATIENCE, find_chromium, launch
from tests.browser.desk import Desk, opened_desk

HERE = Path(__file__).parent
DESKS = pytest.StashKey[list[Desk]]()

expect.set_options(timeout=PATIENCE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Screenshots are written only when somebody wants them, so that a plain run leaves no traces."""
    parser.addoption("--screenshots", metavar="DIR", help="write the documentation's screenshots here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure names a picture of what was to be seen, and the trace that led to it."""
    report = yield
    if call.when == "call" and report.failed:
        for number, desk in enumerate(item.stash.get(DESKS, [])):
            place = Path(tempfile.mkdtemp(prefix=f"transom-browser-{item.name[:40]}-{number}-"))
            told = [*desk.seen.keep(place), *desk.seen.unpardoned()]
            report.sections.append(("browser", "\n".join(told)))
    return report


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A browser for all tests."""
    path = find_chromium()
    if path is None:
        pytest.fail("no Chromium: `make test-browser` installs it, CHROMIUM=path names one", pytrace=False)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        yield browser
        browser.close()


@pytest.fixture
def open_desk(
    spark: Any, chromium: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Desk]]:
    """Opens desks; in the end asserts that their pages asked nobody else for anything, and met no error."""
    desks = request.node.stash.setdefault(DESKS, [])
    with ExitStack() as stack:

        def opened(**options: Any) -> Desk:
            place = tmp_path / str(len(desks))
            desks.append(stack.enter_context(opened_desk(spark, chromium, place, **options)))
            return desks[-1]

        yield opened
        problems = [problem for desk in desks for problem in desk.seen.unpardoned()]
        assert not problems, "\n".join(problems)


@pytest.fixture
def desk(open_desk: Callable[..., Desk]) -> Desk:
    """A desk like any other."""
    return open_desk()
