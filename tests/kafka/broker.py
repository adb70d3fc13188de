"""A broker of Kafka on loopback, and Spark's connector: both come from Maven Central by their coordinates."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transom.backends.spark.cluster import free_ports

HOST = "127.0.0.1"
USER, PASSWORD = "reader", "pa55word-of-the-reader"
Message = tuple[int, str | None, bytes | str | None]  # partition, key and value


def jars_of(pom: str) -> list[str]:
    """The jars of a file of coordinates; Maven downloads those that are missing."""
    if shutil.which("mvn") is None:
        raise RuntimeError("these tests need Maven: apt-get install maven")
    with tempfile.TemporaryDirectory(prefix="transom-jars-") as directory:
        target = Path(directory) / "classpath"
        command = ["mvn", "-q", "-B", "-f", str(Path(__file__).parent / pom), "dependency:build-classpath"]
        subprocess.run(
            [*command, f"-Dmdep.outputFile={target}"], check=True, stdin=subprocess.DEVNULL, timeout=600
        )
        return target.read_text().strip().split(":")


@dataclass(frozen=True)
class Broker:
    """The addresses of a broker: one for everybody, and one for which clients need a password."""

    servers: str
    guarded_servers: str


@contextmanager
def kafka_broker(patience: float = 60.0) -> Iterator[Broker]:
    """A broker that accepts connections; its process ends with the block."""
    jars = ":".join(jars_of("broker.xml"))
    scratch = Path(tempfile.mkdtemp(prefix="transom-kafka-"))
    port, guarded, controller = free_ports(3)
    settings = scratch / "server.properties"
    settings.write_text(_settings(port, guarded, controller, scratch / "logs"))
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", jars]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    process = None
    try:
        with open(scratch / "broker.log", "wb") as log:
            where = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            prepare = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
            subprocess.run(prepare, check=True, **where)  # type: ignore[call-overload]
            process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], **where)  # type: ignore[call-overload]
        _await(process, port, scratch / "broker.log", patience)
        yield Broker(f"{HOST}:{port}", f"{HOST}:{guarded}")
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _settings(port: int, guarded: int, controller: int, logs: Path) -> str:
    listeners = f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{guarded}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@{HOST}:{controller}",
            f"listeners={listeners},CONTROLLER://{HOST}:{controller}",
            f"advertised.listeners={listeners}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN",
            f'listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_{USER}="{PASSWORD}";',
            "inter.broker.listener.name=PLAINTEXT",
            f"log.dirs={logs}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.min.isr=1",
            "auto.create.topics.enable=false",
        ]
    )


def _await(process: subprocess.Popen[bytes], port: int, log: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the broker did not start:\n{text}") from None
            time.sleep(0.2)


class Topics:
    """Makes topics, and writes and reads their messages, through the connector of a Spark session."""

    def __init__(self, spark: Any, servers: str):
        self.spark, self.servers = spark, servers

    def create(self, topic: str, partitions: int = 1) -> str:
        """A topic under a name that no other test uses."""
        name = f"{topic}-{uuid.uuid4().hex[:8]}"
        jvm = self.spark._jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", self.servers)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            topics = jvm.java.util.ArrayList()
            topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1))
            admin.createTopics(topics).all().get()
        finally:
            admin.close()
        return name

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Append messages, in this order within each partition."""
        rows = [
            (partition, key, value.encode() if isinstance(value, str) else value)
            for partition, key, value in messages
        ]
        frame = self.spark.createDataFrame(rows, "partition int, key string, value binary").coalesce(1)
        self._options(frame.write.format("kafka")).option("topic", topic).save()

    def send_in_transaction(self, topic: str, values: Sequence[str], commit: bool) -> None:
        """Append messages to the first partition in one transaction, which is committed or aborted."""
        jvm = self.spark._jvm
        properties = jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", self.servers)
        properties.setProperty("transactional.id", uuid.uuid4().hex)
        text = jvm.org.apache.kafka.common.serialization.StringSerializer
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(properties, text(), text())
        try:
            producer.initTransactions()
            producer.beginTransaction()
            for value in values:
                producer.send(jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, 0, None, value))
            producer.flush()
            producer.commitTransaction() if commit else producer.abortTransaction()
        finally:
            producer.close()

    def read(self, topic: str) -> list[tuple[str | None, str]]:
        """All messages of a topic, as keys and values, in their order within each partition."""
        reader = self._options(self.spark.read.format("kafka")).option("subscribe", topic)
        rows = reader.load().selectExpr(
            "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "partition", "offset"
        )
        return [(row.key, row.value) for row in rows.orderBy("partition", "offset").collect()]

    def _options(self, io: Any) -> Any:
        return io.option("kafka.bootstrap.servers", self.servers)
