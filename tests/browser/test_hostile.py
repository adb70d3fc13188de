"""Whatever people and streams call things, it is shown as text, and nothing of it runs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.desk import COUNTS, EARLY, ON_DEMAND, PER_CITY, Desk

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


def assert_nothing_ran(desk: Desk) -> None:
    assert desk.page.evaluate("window.hacked") is None
    assert desk.page.locator("img[src=x], svg[onload], [onmouseover], [onerror]").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_wherever_it_is_shown(desk: Desk, name: str) -> None:
    desk.service.register(COUNTS, name)
    desk.service.register(COUNTS.replace("RANGE 1", "RANGE 2"), f"{name} too")
    desk.push(("Oslo", 1.0, "12:00:00"), ("Oslo", 1.0, "12:01:00"))
    for path in ("/", "/queries"):
        page = desk.open(path)
        expect(desk.row_of(name)).to_be_visible()
        assert_nothing_ran(desk)
    desk.row_of(name).get_by_role("link").click()
    expect(desk.at("title")).to_have_text(name)
    assert page.title().startswith(name)
    expect(desk.at("facts")).to_contain_text(f"{name} too")
    expect(desk.rows("final")).to_have_count(1)
    desk.at("tab-explain").click()
    expect(desk.at("explain")).to_contain_text(name)
    assert_nothing_ran(desk)
    desk.open("/sharing")
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    assert_nothing_ran(desk)
    desk.open("/queries")
    desk.row_of(name).get_by_role("link").click()
    desk.at("drop").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Drop {name}?")
    desk.at("drop-confirm").click()
    expect(desk.row_of(f"{name} too")).to_be_visible()
    expect(desk.row_of(name)).to_have_count(0)
    assert_nothing_ran(desk)


def test_groups_are_text_in_tables_charts_and_lists(desk: Desk) -> None:
    desk.register(early=EARLY, per_city=PER_CITY, tops=ON_DEMAND)
    groups = (IMAGE, SCRIPT, ATTRIBUTE, TEMPLATE)
    desk.minute(0, *groups)
    desk.push((IMAGE, 1.0, "12:01:05"), (IMAGE, 1.0, "12:01:40"))
    page = desk.open("/query/early")
    for group in groups:
        expect(desk.rows("final").filter(has_text=group)).to_have_count(1)
    chart = desk.at("chart").locator("svg")
    expect(chart).to_be_visible()
    box: Any = chart.bounding_box()
    for share in (0.05, 0.5, 0.97):  # over the marks: their tooltips are HTML
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        page.evaluate("new Promise(requestAnimationFrame)")
        assert_nothing_ran(desk)
    page.get_by_label("Groups").click()
    expect(page.get_by_role("option", name=IMAGE)).to_be_visible()
    page.get_by_role("option", name=IMAGE).click()
    expect(desk.at("chart")).to_have_attribute("data-final", "1")
    assert_nothing_ran(desk)
    desk.open("/query/tops")
    expect(desk.rows().filter(has_text=SCRIPT)).to_have_count(1)
    assert_nothing_ran(desk)


def test_late_rows_and_their_reasons_are_text(desk: Desk) -> None:
    desk.register(counts=COUNTS)
    desk.push((IMAGE, 1.0, "12:00:00"), (SCRIPT, 1.0, "12:05:00"))
    desk.push((IMAGE, 1.0, "12:01:00"), (SCRIPT, 1.0, None))
    desk.open("/late")
    expect(desk.at("late-row")).to_contain_text(IMAGE)
    desk.at("show-rejected").click()
    expect(desk.at("late-row")).to_contain_text(SCRIPT)
    assert_nothing_ran(desk)


def test_sql_is_text_right_or_wrong(desk: Desk) -> None:
    sql = f"{PER_CITY.removesuffix('GROUP BY city')}WHERE city <> '{IMAGE}</script>' GROUP BY city"
    desk.service.register(sql, "hostile")
    page = desk.open("/query/hostile")
    expect(desk.at("sql")).to_contain_text(f"{IMAGE}</script>")
    assert_nothing_ran(desk)
    desk.open("/new")
    desk.write(f"SELECT `{IMAGE}` FROM bids [RANGE 1 minute SLIDE 1 minute]")
    expect(desk.at("check-error")).to_contain_text(IMAGE)
    assert_nothing_ran(desk)
    desk.write(sql)
    expect(desk.at("register")).to_be_enabled()
    desk.at("query-name").fill(f"bad / {IMAGE}")
    desk.at("register").click()
    expect(desk.at("toast")).to_contain_text(IMAGE[:20])
    assert_nothing_ran(desk)
    desk.seen.pardon("status of 404")
    page.goto(f"/query/{quote(IMAGE)}")
    expect(page.get_by_text(f"There is no query named {IMAGE}")).to_be_visible()
    assert_nothing_ran(desk)
    page.goto("/new?" + urlencode({"sql": f"</script>{SCRIPT}", "name": f'">{IMAGE}'}))
    expect(desk.at("check-error")).to_be_visible()
    assert_nothing_ran(desk)
