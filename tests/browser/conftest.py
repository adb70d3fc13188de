"""Fixtures for the browser tests: one Chromium for all, a page and a server for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.dashboard_fixture import Dashboard, opened_dashboard
from tests.browser.watched_page import TIMEOUT, find_chromium, launch

HERE = Path(__file__).parent
DASHBOARDS = pytest.StashKey[list[Dashboard]]()

expect.set_options(timeout=TIMEOUT)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --screenshots: without it, a test run writes no files."""
    parser.addoption("--screenshots", metavar="DIR", help="write the documentation's screenshots here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this directory as a browser test."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a screenshot and a trace to the report of a failed test."""
    report = yield
    if call.when == "call" and report.failed:
        for number, dashboard in enumerate(item.stash.get(DASHBOARDS, [])):
            directory = Path(tempfile.mkdtemp(prefix=f"transom-browser-{item.name[:40]}-{number}-"))
            lines = [*dashboard.watched.save(directory), *dashboard.watched.unexpected_problems()]
            report.sections.append(("browser", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests."""
    path = find_chromium()
    if path is None:
        pytest.fail("no Chromium: `make test-browser` installs it, CHROMIUM=path names one", pytrace=False)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        yield browser
        browser.close()


@pytest.fixture
def open_dashboard(
    spark: Any, chromium: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Dashboard]]:
    """A function that opens dashboards; at the end, their pages must have had no unexpected problems."""
    yield from _dashboards(spark, chromium, tmp_path, request)


@pytest.fixture
def open_local(
    chromium: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Dashboard]]:
    """The same with engines that compute in this process, without Spark."""
    yield from _dashboards(None, chromium, tmp_path, request)


def _dashboards(
    spark: Any, chromium: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Dashboard]]:
    dashboards = request.node.stash.setdefault(DASHBOARDS, [])
    with ExitStack() as stack:

        def opened(**options: Any) -> Dashboard:
            directory = tmp_path / str(len(dashboards))
            dashboards.append(stack.enter_context(opened_dashboard(spark, chromium, directory, **options)))
            return dashboards[-1]

        yield opened
        problems = [
            problem for dashboard in dashboards for problem in dashboard.watched.unexpected_problems()
        ]
        assert not problems, "\n".join(problems)


@pytest.fixture
def dashboard(open_dashboard: Callable[..., Dashboard]) -> Dashboard:
    """A dashboard with default settings."""
    return open_dashboard()
