"""Sources of Spark by format and options: streams such as Kafka's, and tables such as those of JDBC or a lake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.version import __version__ as spark_version

from transom.backends.connection import FILE_FORMATS, Connection
from transom.backends.hidden_columns import SOURCE_PARTITION
from transom.backends.secrets import with_secrets, without_secrets
from transom.backends.spark.decoders import decoded
from transom.backends.spark.failures import failure_text
from transom.backends.spark.types import schema_of
from transom.errors import SettingError, near_miss

_SCALA = "2.13"
_RELEASE = ".".join(
    spark_version.split(".")[:2]
)  # packages that use Spark's internal classes are for one release
# The package of each format that Spark does not bring. A version of our own is left to the user.
PACKAGES: Mapping[str, str] = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{spark_version}",
    "avro": f"org.apache.spark:spark-avro_{_SCALA}:{spark_version}",
    "protobuf": f"org.apache.spark:spark-protobuf_{_SCALA}:{spark_version}",
    "delta": f"io.delta:delta-spark_{_RELEASE}_{_SCALA}:VERSION",
    "iceberg": f"org.apache.iceberg:iceberg-spark-runtime-{_RELEASE}_{_SCALA}:VERSION",
}
# The driver of each database, by the subprotocol of its URL.
DRIVERS: Mapping[str, str] = {
    "postgresql": "org.postgresql:postgresql:VERSION",
    "mysql": "com.mysql:mysql-connector-j:VERSION",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:VERSION",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc:VERSION",
    "oracle": "com.oracle.database.jdbc:ojdbc11:VERSION",
}
DRIVER_CLASSES: Mapping[str, str] = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
}
_KNOWN_FORMATS = (
    "kafka",
    "rate",
    "rate-micro-batch",
    "socket",
    "delta",
    "iceberg",
    "jdbc",
    "console",
    *FILE_FORMATS,
)
# Spark ignores options that it does not know, so that a misspelled one has no effect.
KNOWN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "kafka": (
        "assign",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "includeHeaders",
        "kafka.bootstrap.servers",
        "kafka.group.id",
        "kafka.security.protocol",
        "kafkaConsumer.pollTimeoutMs",
        "maxOffsetsPerTrigger",
        "maxRecordsPerPartition",
        "maxTriggerDelay",
        "minOffsetsPerTrigger",
        "minPartitions",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "startingTimestamp",
        "subscribe",
        "subscribePattern",
        "topic",
    ),
    "rate": ("numPartitions", "rampUpTime", "rowsPerSecond", "useManualClock"),
    "jdbc": (
        "batchsize",
        "connectionProvider",
        "customSchema",
        "dbtable",
        "driver",
        "fetchsize",
        "isolationLevel",
        "lowerBound",
        "numPartitions",
        "partitionColumn",
        "password",
        "prepareQuery",
        "pushDownPredicate",
        "query",
        "queryTimeout",
        "sessionInitStatement",
        "truncate",
        "upperBound",
        "upsert",
        "url",
        "user",
    ),
}
_NO_DRIVER = re.compile(r"No suitable driver|ClassNotFoundException|CANNOT_LOAD_CLASS|JDBC_DRIVER")


def load_connection(spark: SparkSession, connection: Connection, streaming: bool) -> DataFrame:
    """The rows of a connection; SettingError if Spark can't read them, with what to do about it."""
    format = connection.format
    require_format(spark, format, "reads")
    check_options(format, connection.options)
    decoder = connection.decoder
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format(format).options(**spark_options(format, connection.options))
    if connection.schema is not None and (decoder is None or decoder.has_own_schema):
        reader = reader.schema(_schema(connection.schema))
    try:
        rows: DataFrame = reader.load() if connection.path is None else reader.load(connection.path)
    except (PySparkException, Py4JJavaError) as error:
        raise _load_error(error, connection, streaming) from None
    if streaming and format.lower() == "kafka":
        rows = rows.withColumn(SOURCE_PARTITION, F.concat_ws("/", "topic", "partition"))
    if decoder is None:
        return rows
    return decoded(rows, decoder, connection.schema, connection.keeps_columns)


def spark_options(format: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark takes them, with the values of secrets.

    Without the option `driver`, Java finds only drivers that were there when it started, and none of `spark.jars`.
    """
    given = with_secrets(options)
    found = re.match(r"jdbc:(\w+)", given.get("url", ""))
    if format.lower() == "jdbc" and "driver" not in given and found and found[1] in DRIVER_CLASSES:
        given["driver"] = DRIVER_CLASSES[found[1]]
    return given


def is_file_format(spark: SparkSession, format: str | None) -> bool:
    """Whether a format is one of files, which the engine lists and reads itself."""
    if format is None or format.lower() in FILE_FORMATS:
        return True
    jvm: Any = spark._jvm
    try:
        source = _lookup(spark, format)
    except (PySparkException, Py4JJavaError):
        return False
    loader = source.getClassLoader() or spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    names = (
        "org.apache.spark.sql.execution.datasources.FileFormat",
        "org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2",
    )
    return any(jvm.java.lang.Class.forName(name, False, loader).isAssignableFrom(source) for name in names)


def require_format(spark: SparkSession, format: str, does: str) -> None:
    """Refuse a format that Spark does not know, and name the package that has it."""
    try:
        _lookup(spark, format)
    except (PySparkException, Py4JJavaError):
        raise SettingError(_unknown_format(format, does)) from None


def check_options(format: str, options: Mapping[str, Any]) -> None:
    """Refuse options that are near misses of those that a format has."""
    known = KNOWN_OPTIONS.get(format.lower(), ())
    folded = {name.casefold() for name in known}
    for name in options:
        hint = near_miss(name, known) if name.casefold() not in folded else ""
        if hint:
            raise SettingError(f"{format} has no option {name}{hint}")


def missing_package(format: str) -> str | None:
    """What to do if the package of a format is missing; None if there is none that is known."""
    package = PACKAGES.get(format.lower())
    return None if package is None else f"set spark.jars.packages to {package}"


def driver_hint(url: str, text: str) -> str:
    """What to do if a message says that the driver of a database is missing."""
    found = re.match(r"jdbc:(\w+)", url)
    if found is None or not _NO_DRIVER.search(text) or found[1] not in DRIVERS:
        return ""
    return f"; the driver of {found[1]} is missing: set spark.jars.packages to {DRIVERS[found[1]]}"


def _lookup(spark: SparkSession, format: str) -> Any:
    jvm: Any = spark._jvm
    lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    return lookup(format, spark._jsparkSession.sessionState().conf())


def _unknown_format(format: str, does: str) -> str:
    install = missing_package(format)
    if install is not None:
        return f"Spark has no package for {format}: {install}"
    what = "reader" if does == "reads" else "writer"
    return f"Spark has no {what} for {format}{near_miss(format, _KNOWN_FORMATS)}"


def _schema(text: str) -> StructType:
    return schema_of(text)


def _load_error(error: Exception, connection: Connection, streaming: bool) -> SettingError:
    text = without_secrets(failure_text(error))
    if streaming and re.search(
        r"does not support streamed reading|UNSUPPORTED_STREAMING|STREAMING_DATA_SOURCE", str(error)
    ):
        return SettingError(
            f"{connection.format} is not a stream for Spark: declare a table of it, or give a batch DataFrame"
        )
    hint = driver_hint(str(connection.options.get("url", "")), f"{error} {text}")
    return SettingError(f"Spark can't open {connection.format}: {text}{hint}")
