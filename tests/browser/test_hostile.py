"""Hostile names, values and SQL are shown as text and never run as code."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard_fixture import COUNTS, EARLY, ON_DEMAND, PER_CITY, Dashboard

IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "<script>window.hacked=1</script><b>bold"
ATTRIBUTE = '" onmouseover="window.hacked=1" x=\''
TEMPLATE = "{{constructor.constructor('window.hacked=1')()}} ${window.hacked=1}"
NAMES = (
    IMAGE.replace("/", ""),
    "<svg onload=window.hacked=1>",
    ATTRIBUTE,
    TEMPLATE,
    "delay of 9 in 10, by \"origin\" & 'dest' 100%?#x",
    "größte Verspätung 最大 🛫",
    "` ; DROP SUMMARY x --",
)


def assert_nothing_ran(dashboard: Dashboard) -> None:
    assert dashboard.page.evaluate("window.hacked") is None
    assert dashboard.page.locator("img[src=x], svg[onload], [onmouseover], [onerror]").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_wherever_it_is_shown(dashboard: Dashboard, name: str) -> None:
    dashboard.service.register(COUNTS, name)
    dashboard.service.register(COUNTS.replace("RANGE 1", "RANGE 2"), f"{name} too")
    dashboard.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, "12:01:00"))
    for path in ("/", "/queries"):
        page = dashboard.open(path)
        expect(dashboard.row_of(name)).to_be_visible()
        assert_nothing_ran(dashboard)
    dashboard.row_of(name).get_by_role("link").click()
    expect(dashboard.at("title")).to_have_text(name)
    assert page.title().startswith(name)
    expect(dashboard.at("facts")).to_contain_text(f"{name} too")
    expect(dashboard.rows("final")).to_have_count(1)
    dashboard.at("tab-explain").click()
    expect(dashboard.at("explain")).to_contain_text(name)
    expect(dashboard.at("decisions")).to_contain_text(f"query {name}")
    assert_nothing_ran(dashboard)
    dashboard.open("/sharing")
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    assert_nothing_ran(dashboard)
    dashboard.open("/queries")
    dashboard.row_of(name).get_by_role("link").click()
    dashboard.at("drop").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Drop {name}?")
    dashboard.at("drop-confirm").click()
    expect(dashboard.row_of(f"{name} too")).to_be_visible()
    expect(dashboard.row_of(name)).to_have_count(0)
    assert_nothing_ran(dashboard)


def test_groups_are_text_in_tables_charts_and_lists(dashboard: Dashboard) -> None:
    dashboard.register(early=EARLY, per_city=PER_CITY, tops=ON_DEMAND)
    groups = (IMAGE, SCRIPT, ATTRIBUTE, TEMPLATE)
    dashboard.minute(0, *groups)
    dashboard.push((IMAGE, 1.0, "12:01:05"), (IMAGE, 1.0, "12:01:40"))
    page = dashboard.open("/query/early")
    for group in groups:
        expect(dashboard.rows("final").filter(has_text=group)).to_have_count(1)
    chart = dashboard.at("chart").locator("svg")
    expect(chart).to_be_visible()
    box: Any = chart.bounding_box()
    for share in (0.05, 0.5, 0.97):  # over the points: their tooltips are HTML
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        page.evaluate("new Promise(requestAnimationFrame)")
        assert_nothing_ran(dashboard)
    page.get_by_label("Groups").click()
    expect(page.get_by_role("option", name=IMAGE)).to_be_visible()
    page.get_by_role("option", name=IMAGE).click()
    expect(dashboard.at("chart")).to_have_attribute("data-final", "1")
    assert_nothing_ran(dashboard)
    dashboard.open("/query/tops")
    expect(dashboard.rows().filter(has_text=SCRIPT)).to_have_count(1)
    assert_nothing_ran(dashboard)


def test_late_rows_and_their_reasons_are_text(dashboard: Dashboard) -> None:
    dashboard.register(counts=COUNTS)
    dashboard.push((IMAGE, 1.0, "12:00:00"), (SCRIPT, 1.0, "12:05:00"))
    dashboard.push((IMAGE, 1.0, "12:01:00"), (SCRIPT, 1.0, None))
    dashboard.open("/late")
    expect(dashboard.at("late-row")).to_contain_text(IMAGE)
    dashboard.at("show-rejected").click()
    expect(dashboard.at("late-row")).to_contain_text(SCRIPT)
    assert_nothing_ran(dashboard)


def test_sql_is_text_right_or_wrong(dashboard: Dashboard) -> None:
    sql = f"{PER_CITY.removesuffix('GROUP BY city')}WHERE city <> '{IMAGE}</script>' GROUP BY city"
    dashboard.service.register(sql, "hostile")
    page = dashboard.open("/query/hostile")
    expect(dashboard.at("sql")).to_contain_text(f"{IMAGE}</script>")
    assert_nothing_ran(dashboard)
    dashboard.open("/new")
    dashboard.write(f"SELECT `{IMAGE}` FROM bids [RANGE 1 minute SLIDE 1 minute]")
    expect(dashboard.at("check-error")).to_contain_text(IMAGE)
    assert_nothing_ran(dashboard)
    dashboard.write(sql)
    expect(dashboard.at("register")).to_be_enabled()
    dashboard.at("query-name").fill(f"bad / {IMAGE}")
    dashboard.at("register").click()
    expect(dashboard.at("toast")).to_contain_text(IMAGE[:20])
    assert_nothing_ran(dashboard)
    dashboard.watched.expect_problem("status of 404")
    page.goto(f"/query/{quote(IMAGE)}")
    expect(page.get_by_text(f"There is no query named {IMAGE}")).to_be_visible()
    assert_nothing_ran(dashboard)
    page.goto("/new?" + urlencode({"sql": f"</script>{SCRIPT}", "name": f'">{IMAGE}'}))
    expect(dashboard.at("check-error")).to_be_visible()
    assert_nothing_ran(dashboard)
