"""Streams from topics of a real broker, and results to topics."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.kafka.broker import PASSWORD, USER, Broker, Message, Topics
from transom.cli.build_engine import declare_pipeline
from transom.cli.pipeline import load_pipeline
from transom.errors import SettingError, TransomError
from transom.storage.failpoints import arm

pytestmark = pytest.mark.kafka

START = datetime(2024, 1, 1, 12)
SCHEMA = "site int, price double, ts timestamp"
COUNTS = (
    "SELECT site, count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
)


@contextmanager
def failing_after_delivery() -> Iterator[None]:
    """The batch of the block is delivered and not committed."""

    def fail(point: str) -> None:
        if point == "delivery.end":
            raise OSError("the power is gone")

    arm(fail)
    try:
        with pytest.raises(OSError, match="power"):
            yield
    finally:
        arm(None)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def bid(site: int, seconds: float, price: float = 1.0, **more: Any) -> str:
    return json.dumps({"site": site, "price": price, "ts": at(seconds), **more})


def from_topic(servers: str, *topics: str, **options: Any) -> dict[str, Any]:
    """The description of a source: the topics from their beginning."""
    read = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics), "startingOffsets": "earliest"}
    return {"format": "kafka", "options": read | options}


def counts(query: Any) -> dict[tuple[str, int], tuple[int, float]]:
    return {
        (f"{row['window_end']:%H:%M}", row["site"]): (row["n"], row["total"])
        for row in query.results().to_pylist()
    }


def expected(bids: list[tuple[int, float, float]]) -> dict[tuple[str, int], tuple[int, float]]:
    """The same from the rows themselves: site, seconds and price."""
    rows, totals = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for site, seconds, price in bids:
        end = START + timedelta(seconds=60 * (int(seconds) // 60 + 1))
        rows[f"{end:%H:%M}", site] += 1
        totals[f"{end:%H:%M}", site] += price  # type: ignore[assignment]
    return {key: (n, float(totals[key])) for key, n in rows.items()}


def test_partitions_of_uneven_speed(kafka_engine: EngineFactory, topics: Topics) -> None:
    """A partition that is an hour behind is waited for, so that nothing is late."""
    topic = topics.create("bids", 3)
    bids = [(p, k * step, float(k)) for p, step in enumerate((0.5, 7.0, 60.0)) for k in range(100)]
    topics.send(topic, [(p, None, bid(p, seconds, price)) for p, seconds, price in bids])
    with kafka_engine() as engine:
        source = from_topic(topics.servers, topic, maxOffsetsPerTrigger=45)
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts", partition_idle=None)
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == expected(bids)
        progress = engine.progress()
        assert progress.batch_id > 5 and progress.streams["bids"].late == 0


def test_one_clock_for_all_partitions_makes_rows_late(kafka_engine: EngineFactory, topics: Topics) -> None:
    topic = topics.create("bids", 2)
    fast, slow = [(0, None, bid(0, k * 60)) for k in range(60)], [(1, None, bid(1, k)) for k in range(60)]
    topics.send(topic, [*fast, *slow])
    with kafka_engine() as engine:
        source = from_topic(topics.servers, topic, maxOffsetsPerTrigger=20)
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts", partition=None)
        engine.register(COUNTS)
        engine.drain(close=True)
        assert engine.progress().streams["bids"].late > 0


def test_poison_goes_to_the_rejected_output(kafka_engine: EngineFactory, topics: Topics) -> None:
    topic = topics.create("bids", 1)
    poison: list[Message] = [
        (0, None, "{not json"),
        (0, None, b"\xff\xfe\x00"),
        (0, None, json.dumps({"site": "seven", "ts": at(5)})),
        (0, None, ""),
        (0, None, None),
        (0, None, json.dumps({"site": 1, "price": 1.0})),
    ]
    topics.send(topic, [(0, None, bid(1, 1)), *poison, (0, None, bid(1, 2)), (0, None, bid(1, 70))])
    with kafka_engine() as engine:
        source = from_topic(topics.servers, topic)
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts")
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == expected([(1, 1, 1.0), (1, 2, 1.0), (1, 70, 1.0)])
        rejected = engine.rejected("bids").to_pylist()
        reasons = Counter((row["reason"], row["_corrupt_record"]) for row in rejected)
        assert reasons == {
            ("not parsable", "{not json"): 1,
            ("not parsable", "\ufffd\ufffd\x00"): 1,
            ("not parsable", json.dumps({"site": "seven", "ts": at(5)})): 1,
            ("not parsable", ""): 1,
            ("no time: null", None): 2,
        }
        assert {row["_source_partition"] for row in rejected} == {f"{topic}/0"}
        topics.send(topic, [(0, None, "worse"), (0, None, bid(2, 200))])
        assert engine.progress().streams["bids"].rows == 9


def test_a_view_before_the_stream_keeps_poison(kafka_engine: EngineFactory, topics: Topics) -> None:
    topic = topics.create("bids", 1)
    messages = [bid(1, 1, 5.0), "poison", bid(2, 2, -1.0), bid(3, 3, 7.0)]
    topics.send(topic, [(0, f"k{place}", text) for place, text in enumerate(messages)])
    with kafka_engine() as engine:
        engine.stream(
            "bids",
            **from_topic(topics.servers, topic),
            decode="json",
            schema=SCHEMA,
            select="SELECT site, price * 2 AS price, ts, `offset` AS at, CAST(key AS STRING) AS key "
            "FROM bids WHERE price > 0",
            time="ts",
        )
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == {("12:01", 1): (1, 10.0), ("12:01", 3): (1, 14.0)}
        (rejected,) = engine.rejected("bids").to_pylist()
        assert (rejected["_corrupt_record"], rejected["at"], rejected["key"]) == ("poison", 1, "k1")


def test_schema_drift(kafka_engine: EngineFactory, topics: Topics, tmp_path: Path) -> None:
    """New fields are read once the schema names them; missing ones are null; a restart continues the queries."""
    topic = topics.create("bids", 1)
    source = from_topic(topics.servers, topic)

    def life(schema: str) -> tuple[transom.Engine, Any]:
        engine = kafka_engine(tmp_path / "checkpoint")
        engine.stream("bids", **source, decode="json", schema=schema, time="ts")
        return engine, engine.register(COUNTS, "counts")

    topics.send(topic, [(0, None, bid(1, 1, color="red")), (0, None, json.dumps({"site": 1, "ts": at(2)}))])
    engine, query = life(SCHEMA)
    with engine:
        engine.drain(close=False)
    topics.send(topic, [(0, None, bid(1, 61, color="blue")), (0, None, bid(1, 121))])
    engine, query = life(f"{SCHEMA}, color string")
    with engine:
        colors = engine.register(
            "SELECT color, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY color"
        )
        engine.drain(close=True)
        assert counts(query) == {("12:01", 1): (2, 1.0), ("12:02", 1): (1, 1.0), ("12:03", 1): (1, 1.0)}
        seen = [(row["color"], row["n"]) for row in colors.results().to_pylist()]
        assert ("blue", 1) in seen and (None, 1) in seen


@pytest.mark.parametrize(("level", "n"), [("read_committed", 2), ("read_uncommitted", 3)])
def test_messages_of_an_aborted_transaction(
    kafka_engine: EngineFactory, topics: Topics, level: str, n: int
) -> None:
    topic = topics.create("bids", 1)
    for second, commit in ((1, True), (2, False), (3, True)):
        topics.send_in_transaction(topic, [bid(1, second)], commit)
    with kafka_engine() as engine:
        source = from_topic(topics.servers, topic, **{"kafka.isolation.level": level})
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts")
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == {("12:01", 1): (n, float(n))}


def test_a_topic_of_punctuations(kafka_engine: EngineFactory, topics: Topics) -> None:
    """Rows of a second topic close windows of one site."""
    data, marks = topics.create("bids", 1), topics.create("marks", 1)
    topics.send(data, [(0, None, bid(1, 1)), (0, None, bid(2, 2))])
    topics.send(marks, [(0, None, json.dumps({"site": 1, "ts": at(60)}))])
    with kafka_engine() as engine:
        engine.stream(
            "bids",
            **from_topic(topics.servers, data, marks),
            decode="json",
            schema=SCHEMA,
            select=f"SELECT site, price, ts, topic = '{marks}' AS is_mark FROM bids",
            time="ts",
            slack=None,
            punctuation="is_mark",
        )
        query = engine.register(COUNTS)
        engine.drain(close=False)
        assert counts(query) == {("12:01", 1): (1, 1.0)}


def test_a_topic_of_prods(kafka_engine: EngineFactory, topics: Topics) -> None:
    data, prods = topics.create("bids", 1), topics.create("prods", 1)
    topics.send(data, [(0, None, bid(1, 1)), (0, None, bid(2, 2))])
    with kafka_engine() as engine:
        bids = from_topic(topics.servers, data)
        engine.stream("bids", **bids, decode="json", schema=SCHEMA, time="ts")
        asked = from_topic(topics.servers, prods)
        engine.prods("asks", **asked, decode="json", schema="site int", of="bids", where=["site"])
        query = engine.register(f"{COUNTS} EMIT EARLY ON DEMAND")
        engine.drain(close=False)
        topics.send(prods, [(0, None, json.dumps({"site": 2}))])
        engine.drain(close=False)
        rows = [(row["kind"], row["site"], row["n"]) for row in query.results().to_pylist()]
        assert rows == [("early", 2, 1)]


def test_results_go_to_a_topic_by_key(kafka_engine: EngineFactory, topics: Topics) -> None:
    data, out, everything = topics.create("bids", 2), topics.create("out", 2), topics.create("all", 2)
    bids = [(site, 10.0 * k, float(k)) for k in range(30) for site in (1, 2)]
    topics.send(data, [(site - 1, None, bid(site, seconds, price)) for site, seconds, price in bids])
    with kafka_engine() as engine:
        engine.stream("bids", **from_topic(topics.servers, data), decode="json", schema=SCHEMA, time="ts")
        query = engine.register(COUNTS, "counts")
        options = {"kafka.bootstrap.servers": topics.servers}
        query.sink("kafka", **options, topic=out)
        engine.sink("kafka", **options, topic=everything)
        engine.drain(close=True)
        results = counts(query)
    messages = {key: json.loads(value) for key, value in topics.read(out) if key is not None}
    assert len(messages) == len(results) == len(topics.read(out))
    found = {(row["window_end"][11:16], row["site"]): (row["n"], row["total"]) for row in messages.values()}
    assert found == results == expected(bids)
    keys = [json.loads(key) for key in messages]
    assert set(keys[0]) == {"query", "window_start", "window_end", "site"}
    assert {key["query"] for key in keys} == {"counts"}
    assert len({key for key, _ in topics.read(everything)}) == len(results)


def test_alerts_go_to_a_topic(kafka_engine: EngineFactory, topics: Topics, tmp_path: Path) -> None:
    """A batch that fails after delivery sends its events again, in their order, with the same ids."""
    out = topics.create("alerts", 2)
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"""
streams:
  bids: {{push: true, schema: "{SCHEMA}", time: ts}}
queries:
  busy: {COUNTS} HAVING n > 1 ALERT SUMMARY '{{site}}'
alert_sinks:
  events: {{topic: {out}, options: {{kafka.bootstrap.servers: "{topics.servers}"}}}}
""")

    def started() -> transom.Engine:
        engine = kafka_engine(tmp_path / "checkpoint")
        declare_pipeline(engine, load_pipeline(file))
        return engine

    engine = started()
    rows = [(site, 1.0, at(60 * minute + site)) for minute in (0, 0, 2) for site in range(5)]
    engine.push("bids", rows)
    with failing_after_delivery():
        engine.step()
    engine.stop()
    engine = started()
    with engine:
        engine.step()
        written = engine.alerting.events()[0]
        assert [sink.kind for sink in engine.alerting.sinks()] == ["topic"]
    messages = [(key, json.loads(value)) for key, value in topics.read(out)]
    assert len(messages) == 2 * len(written) == 20
    by_alert: dict[str, dict[str, str]] = {}
    for key, event in messages:
        assert key == event["id"]
        by_alert.setdefault(event["id"], {})[event["event_id"]] = event["state"]
    assert [list(states.values()) for states in by_alert.values()] == [["firing", "resolved"]] * 5
    events = {event["event_id"]: event for _, event in messages}
    assert events == {event.event_id: event.to_json() for event in written}


def test_a_pipeline_file(
    kafka_engine: EngineFactory, topics: Topics, tmp_path: Path, monkeypatch: Any
) -> None:
    data, out = topics.create("bids", 1), topics.create("out", 1)
    topics.send(data, [(0, None, bid(1, 1)), (0, None, bid(1, 61))])
    monkeypatch.setenv("BIDS_SERVERS", topics.servers)
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"""
streams:
  bids:
    format: kafka
    options: {{kafka.bootstrap.servers: "${{env:BIDS_SERVERS}}", subscribe: {data}, startingOffsets: earliest}}
    decode: json
    schema: {SCHEMA}
    time: ts
queries:
  counts:
    sql: {COUNTS}
    sinks:
      - {{format: kafka, options: {{kafka.bootstrap.servers: "${{env:BIDS_SERVERS}}", topic: {out}}}}}
""")
    with kafka_engine() as engine:
        declare_pipeline(engine, load_pipeline(file))
        engine.drain(close=True)
        assert counts(engine.query("counts")) == expected([(1, 1, 1.0), (1, 61, 1.0)])
    assert len(topics.read(out)) == 2


def with_password(broker: Broker) -> dict[str, str]:
    """Options of Kafka's clients at the address for which they need a password."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "kafka.bootstrap.servers": broker.guarded_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="${{env:BIDS_PASSWORD}}";',
    }


def test_secrets_are_in_no_file_and_no_log(
    kafka_engine: EngineFactory,
    topics: Topics,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: Any,
    caplog: Any,
    capfd: Any,
) -> None:
    """A password opens the topics; it is nowhere else."""
    monkeypatch.setenv("BIDS_PASSWORD", PASSWORD)
    topic, out = topics.create("bids", 1), topics.create("out", 1)
    topics.send(topic, [(0, None, bid(1, 1))])
    access = with_password(broker)
    with caplog.at_level(logging.DEBUG, logger="transom"), kafka_engine(tmp_path / "checkpoint") as engine:
        source = from_topic(topics.servers, topic, **access)
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts")
        query = engine.register(COUNTS, "counts")
        query.sink("kafka", **access, topic=out)
        engine.drain(close=True)
        assert counts(query)
        shown = f"{engine!r} {engine.explain()} {engine.progress()}"
    assert len(topics.read(out)) == 1
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert written and not [file for file in written if PASSWORD.encode() in file.read_bytes()]
    captured = capfd.readouterr()
    assert PASSWORD not in f"{shown} {caplog.text} {captured.out} {captured.err}"


def test_a_wrong_password_stops_the_engine_with_the_reason(
    kafka_engine: EngineFactory, topics: Topics, broker: Broker, monkeypatch: Any
) -> None:
    monkeypatch.setenv("BIDS_PASSWORD", "not-the-password")
    topic = topics.create("bids", 1)
    with kafka_engine() as engine:
        source = from_topic(topics.servers, topic, **with_password(broker))
        engine.stream("bids", **source, decode="json", schema=SCHEMA, time="ts")
        engine.register(COUNTS, "counts")
        with pytest.raises(TransomError, match="Authentication failed") as raised:
            engine.drain(close=True)
    assert "not-the-password" not in str(raised.value)


AVRO = {
    "type": "record",
    "name": "bid",
    "fields": [
        {"name": "site", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def test_avro_with_a_header(kafka_engine: EngineFactory, topics: Topics, tmp_path: Path) -> None:
    from pyspark.sql.avro.functions import to_avro

    topic, schema = topics.create("bids", 1), tmp_path / "bid.avsc"
    schema.write_text(json.dumps(AVRO))
    rows = topics.spark.sql(f"SELECT 1 AS site, 2.5D AS price, TIMESTAMP '{at(1)}' AS ts")
    packed = rows.select(to_avro(_struct(rows), json.dumps(AVRO)).alias("v")).first()[0]
    topics.send(
        topic, [(0, None, b"\x00\x00\x00\x00\x07" + bytes(packed)), (0, None, b"\x00\x00\x00\x00\x07\x01")]
    )
    with kafka_engine() as engine:
        decode = {"format": "avro", "schema_file": str(schema), "skip_bytes": 5}
        engine.stream("bids", **from_topic(topics.servers, topic), decode=decode, time="ts")
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == {("12:01", 1): (1, 2.5)}
        assert [row["_corrupt_record"] for row in engine.rejected("bids").to_pylist()] == ["AQ=="]


def _struct(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return F.struct(*rows.columns)


def test_csv_values(kafka_engine: EngineFactory, topics: Topics) -> None:
    topic = topics.create("bids", 1)
    topics.send(topic, [(0, None, f"1;2.5;{at(1)}"), (0, None, "x;y;z"), (0, None, f"2;1.5;{at(2)}")])
    with kafka_engine() as engine:
        decode = {"format": "csv", "options": {"sep": ";"}}
        engine.stream("bids", **from_topic(topics.servers, topic), decode=decode, schema=SCHEMA, time="ts")
        query = engine.register(COUNTS)
        engine.drain(close=True)
        assert counts(query) == {("12:01", 1): (1, 2.5), ("12:01", 2): (1, 1.5)}
        assert [row["_corrupt_record"] for row in engine.rejected("bids").to_pylist()] == ["x;y;z"]


def test_a_running_engine_follows_a_topic(kafka_engine: EngineFactory, topics: Topics) -> None:
    topic = topics.create("bids", 1)
    with kafka_engine() as engine:
        engine.stream("bids", **from_topic(topics.servers, topic), decode="json", schema=SCHEMA, time="ts")
        query = engine.register(COUNTS)
        engine.start()
        topics.send(topic, [(0, None, bid(1, 1)), (0, None, "poison")])
        topics.send(topic, [(0, None, bid(1, 2)), (0, None, bid(1, 61))])
        deadline = time.monotonic() + 60
        offsets = [(f"{topic} 0", 4, 4)]
        while (not counts(query) or read_up_to(engine) != offsets) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert counts(query) == {("12:01", 1): (2, 2.0)}
        assert engine.progress().streams["bids"].rejected == 1
        assert read_up_to(engine) == offsets


def read_up_to(engine: transom.Engine) -> list[tuple[str, int | None, int | None]]:
    """The partitions of a topic, how far they were read, and how far they could be; Spark reports it after a batch."""
    return [(each.name, each.offset, each.latest) for each in engine.streams()["bids"].source.partitions]


SERVERS = {"kafka.bootstrap.servers": "b"}
TOPIC = SERVERS | {"subscribe": "t"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"options": {"subscribe": "t"}}, "can't open kafka: .*kafka.bootstrap.servers"),
        ({"options": SERVERS | {"subscribes": "t"}}, "no option subscribes; did you mean subscribe"),
        ({"options": TOPIC, "decode": "json"}, "json needs a schema"),
        (
            {"options": TOPIC, "decode": {"format": "json", "column": "v"}, "schema": SCHEMA},
            "there is no column v",
        ),
        (
            {"options": TOPIC | {"kafka.bootstrap.servers": "${env:NOT_SET_HERE}"}},
            "option kafka.bootstrap.servers: the environment variable NOT_SET_HERE is not set",
        ),
        (
            {"options": TOPIC, "decode": {"format": "protobuf", "message": "m", "descriptor_file": __file__}},
            r"no package for protobuf: set spark.jars.packages to org.apache.spark:spark-protobuf_2.13:\d",
        ),
    ],
)
def test_wrong_descriptions_are_refused(
    kafka_engine: EngineFactory, given: dict[str, Any], says: str
) -> None:
    with kafka_engine() as engine, pytest.raises(SettingError, match=says):
        engine.stream("bids", format="kafka", time="ts", **given)
