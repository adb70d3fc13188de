"""Results as messages of Kafka, without a broker."""

from __future__ import annotations

import json

import pyarrow as pa

from tests.engine_factory import EngineFactory, on_spark
from tests.results.orders import ORDERS
from transom.backends.base import ResultKey
from transom.backends.spark.frame import data_frame
from transom.backends.spark.sinks import messages

pytestmark = on_spark("messages are written by Spark")


def test_the_last_message_of_a_key_is_its_last_result(make_engine: EngineFactory) -> None:
    """A site for each order of results; a message without a value deletes its key."""
    rows = [(site, kind) for site, (kinds, _, _) in enumerate(ORDERS) for kind in kinds]
    table = pa.table({"site": [site for site, _ in rows], "kind": [kind for _, kind in rows]})
    frame = make_engine.backend.frame(table)
    last = {
        json.loads(row["key"])["site"]: row["value"] and json.loads(row["value"])["kind"]
        for row in messages(data_frame(frame), ResultKey(("site",), "q")).collect()
    }
    assert last == {site: kind for site, (_, _, kind) in enumerate(ORDERS)}
