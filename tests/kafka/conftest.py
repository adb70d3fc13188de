"""A broker on loopback, and a Spark session with the connector; `make test-kafka` runs these tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.engine_factory import EngineFactory
from tests.kafka.broker import Broker, Topics, jars_of, kafka_broker
from transom.backends.spark.session import start_session


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with kafka_broker() as running:
        yield running


@pytest.fixture(scope="session")
def connector() -> list[str]:
    return jars_of("connector.xml")


@pytest.fixture(scope="session")
def kafka_session(connector: list[str]) -> Iterator[SparkSession]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = start_session(
        "kafka tests", "local[2]", {"spark.jars": ",".join(connector), "spark.driver.memory": "1g"}
    )
    yield session
    session.stop()


@pytest.fixture
def topics(kafka_session: SparkSession, broker: Broker) -> Topics:
    return Topics(kafka_session, broker.servers)


@pytest.fixture(scope="session")
def kafka_engine(kafka_session: SparkSession) -> EngineFactory:
    return EngineFactory("spark", kafka_session)
