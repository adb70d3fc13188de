"""What the oracle's comparisons with Spark share."""

from __future__ import annotations

from typing import Any, Iterator

import pytest


@pytest.fixture
def lenient(spark: Any) -> Iterator[Any]:
    """The session with ANSI mode off and its clocks on UTC, as the engine evaluates scalars."""
    wanted = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
