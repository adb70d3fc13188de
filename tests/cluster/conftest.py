"""A session on a real standalone cluster: a master and two workers as processes on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.engine_factory import EngineFactory
from transom.backends.spark.cluster import loopback_cluster
from transom.backends.spark.session import start_session


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkSession]:
    with loopback_cluster() as master:
        session = start_session(
            "cluster tests",
            master,
            {
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
            },
        )
        yield session
        session.stop()


@pytest.fixture(scope="session")
def cluster_engine(cluster: SparkSession) -> EngineFactory:
    """Makes engines on the cluster."""
    return EngineFactory("spark", cluster)
