"""Alerts on the dashboard: what fires, and how it is silenced."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.dashboard_fixture import PER_CITY, Dashboard

BUSY = f"{PER_CITY} HAVING count(*) > 1 ALERT FOR 2 WINDOWS SEVERITY 'page' SUMMARY '{{city}}: {{n}} bids'"


def test_an_alert_is_pending_fires_is_silenced_and_resolved(open_local: Callable[..., Dashboard]) -> None:
    dashboard = open_local()
    dashboard.open("/alerts")
    expect(dashboard.at("alerts")).to_contain_text("No alerts yet")
    dashboard.register(busy=BUSY)
    dashboard.minute(0, "Oslo")
    dashboard.minute(1, "Oslo")
    row = dashboard.at("alert-row")
    expect(row).to_have_attribute("data-state", "pending")
    dashboard.minute(2, "Oslo")
    expect(row).to_have_attribute("data-state", "firing")
    expect(row).to_contain_text("Oslo: 4 bids")
    expect(row).to_contain_text("severity: page")
    expect(dashboard.at("figure-firing")).to_contain_text("1")
    dashboard.at("silence-duration").select_option("4 hours")
    dashboard.at("silence").click()
    expect(dashboard.at("silence-row")).to_contain_text("alert=busy, city=Oslo")
    dashboard.minute(3, "Oslo")
    expect(row).to_contain_text("silenced")
    dashboard.at("unsilence").click()
    expect(dashboard.at("silence-row")).to_have_count(0)
    dashboard.open("/query/busy")
    expect(dashboard.at("query-alerts")).to_have_text("1 firing")
    dashboard.at("query-alerts").click()
    dashboard.push(("Rome", 1.0, "12:09:00"))
    expect(dashboard.at("alert-row")).to_have_count(0)
    expect(dashboard.at("alert-event").first).to_have_attribute("data-state", "resolved")
