"""Which queries can have an alert, and which texts an alert can have."""

from __future__ import annotations

from transom.alerts.templates import LONGEST_ALERT_TEXT, check_template
from transom.elements import AlertTerms
from transom.errors import SettingError
from transom.sql.bound_query import BoundQuery
from transom.sql.query import Query

MOST_REMINDERS = 100  # in the windows after which an alert is resolved, which can all close in one batch


def alert_obstacle(query: BoundQuery) -> str | None:
    """Why a query can't have an alert; None if it can."""
    if not isinstance(query, Query) or not query.is_standing or query.is_row_query:
        return "an alert needs a query with windows: RANGE and SLIDE"
    if not query.window.is_shared_by_groups:
        return "an alert needs RANGE and SLIDE: windows with SESSION or PARTITION BY differ between groups"
    if query.window.is_cumulative and query.window.calendar is not None:
        # A shorter day leaves ids unused, so windows in a row do not have ids in a row.
        return (
            "an alert is not supported for cumulative windows in a time zone; leave out UP TO or IN TIME ZONE"
        )
    if query.having is None:
        return "an alert needs HAVING: it fires while that is true"
    return None


def check_alert_terms(query: Query, terms: AlertTerms) -> None:
    """Refuse annotations with names that the results do not have, and terms that make very large or many events."""
    if sum(len(text) for _, text in (*terms.labels, *terms.annotations)) > LONGEST_ALERT_TEXT:
        raise SettingError(
            f"the labels and annotations of an alert have at most {LONGEST_ALERT_TEXT:,} characters together"
        )
    if terms.repeat is not None and terms.resolve_after * query.window.slide > MOST_REMINDERS * terms.repeat:
        raise SettingError(
            f"an alert would repeat more than {MOST_REMINDERS} times before it is resolved: use a longer REPEAT EVERY, "
            "or RESOLVE AFTER fewer windows"
        )
    names = [name for name, _ in query.selected]
    for name, text in terms.annotations:
        check_template(f"the annotation {name}", text, names)


def check_alert_clause(query: Query) -> None:
    """Refuse a query with ALERT that can't have an alert."""
    if query.alert is None:
        return
    if (obstacle := alert_obstacle(query)) is not None:
        raise SettingError(obstacle)
    check_alert_terms(query, query.alert)
