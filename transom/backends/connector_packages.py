"""The Maven packages of the formats and databases that Spark does not bring itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

SCALA = "2.13"
# The package of each format. SPARK is Spark's version and SPARK_MINOR its first two numbers; users choose VERSION.
FORMAT_PACKAGES: Mapping[str, str] = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:SPARK",
    "avro": f"org.apache.spark:spark-avro_{SCALA}:SPARK",
    "protobuf": f"org.apache.spark:spark-protobuf_{SCALA}:SPARK",
    "iceberg": f"org.apache.iceberg:iceberg-spark-runtime-SPARK_MINOR_{SCALA}:VERSION",
}
# The driver of each database, by the subprotocol of its URL.
DRIVERS: Mapping[str, str] = {
    "postgresql": "org.postgresql:postgresql:VERSION",
    "mysql": "com.mysql:mysql-connector-j:VERSION",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:VERSION",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc:VERSION",
    "oracle": "com.oracle.database.jdbc:ojdbc11:VERSION",
}


def format_package(format: str, spark_version: str) -> str | None:
    """The package of a format for a version of Spark; None if Spark brings the format, or if it is not known.

    >>> format_package("kafka", "4.3.0"), format_package("rate", "4.3.0")
    ('org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0', None)
    >>> format_package("iceberg", "4.3.0")
    'org.apache.iceberg:iceberg-spark-runtime-4.3_2.13:VERSION'
    """
    package = FORMAT_PACKAGES.get(format.lower())
    if package is None:
        return None
    minor = ".".join(spark_version.split(".")[:2])
    return package.replace("SPARK_MINOR", minor).replace("SPARK", spark_version)


def database_of(url: str) -> str | None:
    """The subprotocol of a JDBC URL.

    >>> database_of("jdbc:postgresql://127.0.0.1/shop")
    'postgresql'
    """
    subprotocol = re.match(r"jdbc:(\w+)", url)
    return None if subprotocol is None else subprotocol[1]
