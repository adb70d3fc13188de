"""The dashboard's URLs over HTTP, with a fake service."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from nicegui import background_tasks
from starlette.testclient import TestClient

from tests.dashboard.fake_service import FakeService, query, stream
from transom.dashboard import mount


@pytest.fixture(scope="module")
def browser():
    app = FastAPI()
    mount(
        app,
        FakeService(
            query("a, b"),
            query("early", emits_early=True, early="at 75%"),
            query("100%?#x"),
            query("a%2Fb"),
            streams=(stream(), stream(name="a/b%")),
        ),
    )
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/", "Overview"),
        ("/queries?search=a&sort=-name&page=3", "Queries"),
        ("/query/a%2C%20b", "a, b"),
        ("/query/early?tab=explain", "early"),
        ("/sharing?search=a", "Sharing"),
        ("/new?sql=SELECT", "New query"),
        ("/late?stream=bids&what=rejected", "Late and rejected"),
        ("/streams", "Streams"),
        ("/stream/bids", "bids"),
        ("/stream/a%2Fb%25", "a/b%"),
        ("/batches", "Batches"),
        ("/help", "SQL reference"),
        ("/help/glossary", "Glossary"),
    ],
)
def test_every_view_has_a_url_and_a_title(browser, path, title):
    answer = browser.get(path)
    assert answer.status_code == 200
    assert f"<title>{title} · Transom</title>" in answer.text


def test_a_name_is_decoded_once(browser):
    assert "<title>100%?#x · Transom</title>" in browser.get("/query/100%25%3F%23x").text
    assert "<title>a%2Fb · Transom</title>" in browser.get("/query/a%252Fb").text


@pytest.mark.parametrize("path", ["/query/unknown", "/what/ever", "/stream/unknown", "/help/unknown"])
def test_an_unknown_url_is_a_not_found_view(browser, path):
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "<title>Not found · Transom</title>" in answer.text


def test_an_unknown_url_of_the_api_is_json(browser):
    answer = browser.get("/api/nothing")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "not_found")


def test_the_dashboard_loads_nothing_from_other_hosts(browser):
    text = browser.get("/").text
    linked = re.findall(r"""(?:src|href)=["'](https?:)?//""", text)
    assert not linked
    for name in set(re.findall(r"/_transom/[\w.]+\?\w+", text)):
        assert browser.get(name).status_code == 200


def test_each_of_two_servers_in_a_process_shows_its_own_service():
    apps = [FastAPI(), FastAPI()]
    for app, name in zip(apps, "ab", strict=True):
        mount(app, FakeService(query(name)), f"Dashboard {name}")
    with TestClient(apps[1]) as second:
        with TestClient(apps[0]) as first:
            for client, own, other in ((first, "a", "b"), (second, "b", "a")):
                assert f"<title>{own} · Dashboard {own}</title>" in client.get(f"/query/{own}").text
                assert client.get(f"/query/{other}").status_code == 404
        assert second.get("/query/b").status_code == 200


def test_a_server_that_stops_leaves_the_tasks_of_another_alone():
    apps = [FastAPI(), FastAPI()]
    for app in apps:
        mount(app, FakeService(query("a")))
    with TestClient(apps[1]) as second:
        before = set(background_tasks.running_tasks)
        with TestClient(apps[0]) as first:
            first.get("/")
            assert set(background_tasks.running_tasks) > before
        assert second.get("/").status_code == 200
        assert not any(task.done() for task in before)
