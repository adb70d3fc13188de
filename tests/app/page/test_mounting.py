"""The addresses of the page, over HTTP, with a service that is made up."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.app.page.fake import FakeService, query, stream
from transom.app.page import mount


@pytest.fixture(scope="module")
def browser():
    app = FastAPI()
    mount(
        app, FakeService(query("a, b"), query("told", emits_early=True, early="at 75%"), streams=(stream(),))
    )
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/", "Overview"),
        ("/queries?search=a&sort=-name&page=3", "Queries"),
        ("/query/a%2C%20b", "a, b"),
        ("/query/told?tab=explain", "told"),
        ("/sharing?search=a", "Sharing"),
        ("/new?sql=SELECT", "New query"),
        ("/late?stream=bids&what=rejected", "Late and rejected"),
    ],
)
def test_every_view_has_an_address_and_a_title(browser, path, title):
    answer = browser.get(path)
    assert answer.status_code == 200
    assert f"<title>{title} · Transom</title>" in answer.text


@pytest.mark.parametrize("path", ["/query/nobody", "/what/ever"])
def test_what_is_not_there_is_a_page_that_says_so(browser, path):
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "<title>Not found · Transom</title>" in answer.text


def test_an_unknown_address_of_the_api_is_json(browser):
    answer = browser.get("/api/nothing")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "not_found")


def test_the_page_names_nothing_outside(browser):
    text = browser.get("/").text
    linked = re.findall(r"""(?:src|href)=["'](https?:)?//""", text)
    assert not linked
    for name in set(re.findall(r"/_transom/[\w.]+\?\w+", text)):
        assert browser.get(name).status_code == 200
