"""Results upserted into a table of PostgreSQL: a result replaces the one with the same query, window and group.

Results of queries without a window replace those of the same query and batch.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from transom.backends.base import NO_KEY, Frame, ResultKey, Sink
from transom.backends.expressions import text_literal
from transom.backends.secrets import option_texts, with_secrets, without_secrets
from transom.backends.spark.connectors import check_options, driver_hint, spark_options
from transom.backends.spark.failures import failure_text
from transom.backends.spark.frame import data_frame
from transom.elements import Kind
from transom.errors import BatchError, SettingError
from transom.sql.query import free_name

UPSERT = "upsert"  # the option of a jdbc sink; Spark has no such option
_SCHEMA = re.compile(r'("[^"]*"|[^".]+)\.')  # before the name of a table
_URL, _DRIVER = "jdbc:postgresql:", "org.postgresql.Driver"


class UpsertSink(Sink):
    """A table of PostgreSQL with a unique index over query, window and group.

    A batch is written to a table of its own, and moved from there in one transaction. A replayed batch writes the same
    rows under the same keys, so that each result is in the table exactly once. A batch's own table has a name that no
    other attempt has, so that an engine that was overtaken can't change it; those of killed processes are dropped.
    """

    format, path = "jdbc", None

    def __init__(self, spark: SparkSession, options: Mapping[str, Any]):
        self.options = {name: text for name, text in option_texts(options).items() if name != UPSERT}
        check_options("jdbc", self.options)
        for name in ("url", "dbtable"):
            if name not in self.options:
                raise SettingError(f"a sink of jdbc needs the option {name}")
        if not with_secrets(self.options)["url"].startswith(_URL):
            raise SettingError(f"upsert is for PostgreSQL: the url must begin with {_URL}//")
        self.table = self.options.pop("dbtable")
        self._cleaned: set[str] = set()  # prefixes of own tables
        self._connect(spark).close()  # refuses a wrong address or password now

    @property
    def exactly_once(self) -> bool:
        return True

    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
        """Write a batch's results."""
        data = data_frame(frame)
        if key.query is not None:
            data = data.select(F.lit(key.query).alias(key.query_column), *data.columns)
        prefix = self._staging_prefix(key)
        self._drop_leftovers(data.sparkSession, prefix)
        staging = f"{self._schema()}{prefix}{uuid.uuid4().hex[:16]}"
        given = spark_options("jdbc", self.options)
        place = free_name("place", {name.casefold() for name in data.columns})
        staged = data.withColumn(place, F.monotonically_increasing_id())
        try:
            staged.write.format("jdbc").options(**given, dbtable=staging).mode("overwrite").save()
            with self.guarded():
                self._run(data.sparkSession, upsert_statements(self.table, staging, data.columns, key, place))
        finally:
            self._run(data.sparkSession, [f"DROP TABLE IF EXISTS {staging}"])

    def _staging_prefix(self, key: ResultKey) -> str:
        """How the names of this output's own tables begin: no other engine, query or table has it."""
        owner = "\n".join((self.writer(), key.query or "", self.table))
        return f"transom_{hashlib.sha256(owner.encode()).hexdigest()[:16]}_"

    def _schema(self) -> str:
        """The schema of the table with a point: the user may not be allowed to create tables elsewhere."""
        schema = _SCHEMA.match(self.table)
        return schema[0] if schema else ""

    def _drop_leftovers(self, spark: SparkSession, prefix: str) -> None:
        """Drop the output's own tables of processes that were killed, before its first batch in this one."""
        if prefix not in self._cleaned:
            with self.guarded():
                self._run(spark, [leftovers_statement(prefix)])
            self._cleaned.add(prefix)

    def _run(self, spark: SparkSession, statements: list[str]) -> None:
        """Run statements in one transaction."""
        connection = self._connect(spark)
        try:
            connection.setAutoCommit(False)
            for text in statements:
                connection.createStatement().execute(text)
            connection.commit()
        except Exception as error:
            connection.rollback()
            reason = without_secrets(failure_text(error))
            raise BatchError(f"results can't be upserted into {self.table}: {reason}") from None
        finally:
            connection.close()

    def _connect(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        given = with_secrets(self.options)
        properties = jvm.java.util.Properties()
        for name in ("user", "password"):
            if name in given:
                properties.setProperty(name, given[name])
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            driver = loader.loadClass(_DRIVER).getDeclaredConstructor(None).newInstance(None)
            return driver.connect(given["url"], properties)
        except Exception as error:
            text = without_secrets(failure_text(error))
            hint = driver_hint(given["url"], str(error))
            raise SettingError(f"can't connect to the database: {text}{hint}") from None


def leftovers_statement(prefix: str) -> str:
    """The statement that drops all tables whose names begin with a prefix of letters, digits and underscores."""
    return (
        "DO $$ DECLARE leftover text; BEGIN FOR leftover IN SELECT oid::regclass::text FROM pg_class "
        f"WHERE relkind = 'r' AND starts_with(relname, '{prefix}') "
        "LOOP EXECUTE 'DROP TABLE ' || leftover; END LOOP; END $$"
    )


def upsert_statements(table: str, staging: str, columns: list[str], key: ResultKey, place: str) -> list[str]:
    """The statements that move rows of a table into another, where they replace those with the same key.

    Of several results of a key in one batch, the last one in the order of the column `place` counts, and early ones
    only if there are no others. If it is a retraction, the result is deleted. A null is a group like others.
    """
    names = ", ".join(map(_quoted, columns))
    condition = key.condition if key.columns else "false"
    query, batch = _quoted(key.query_column), _quoted(key.batch)
    return [
        f"CREATE TABLE IF NOT EXISTS {table} AS SELECT {names} FROM {staging} WITH NO DATA",
        *(_keyed_statements(table, staging, columns, key, place) if key.columns else ()),
        f"DELETE FROM {table} WHERE ({condition}) IS NOT TRUE "
        f"AND ({query}, {batch}) IN (SELECT {query}, {batch} FROM {staging})",
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging} WHERE ({condition}) IS NOT TRUE",
    ]


def _keyed_statements(
    table: str, staging: str, columns: list[str], key: ResultKey, place: str
) -> Iterator[str]:
    names = [_quoted(name) for name in columns]
    key_names = [_quoted(name) for name in dict.fromkeys((key.query_column, *key.columns))]
    keys = ", ".join(key_names)
    changed = ", ".join(f"{name} = EXCLUDED.{name}" for name in names if name not in key_names)
    index = _quoted(f"{table.rpartition('.')[2].strip(chr(34))}_transom_key")
    kind, retracted = _quoted(key.kind), text_literal(Kind.RETRACTION.value)
    is_late = f"{kind} <> {text_literal(Kind.EARLY.value)}"
    where = f"WHERE {key.condition}"
    yield f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {table} ({keys}) NULLS NOT DISTINCT {where}"
    same = " AND ".join(f"gone.{name} IS NOT DISTINCT FROM kept.{name}" for name in key_names)
    yield (f"DELETE FROM {table} AS kept USING {staging} AS gone WHERE gone.{kind} = {retracted} AND {same}")
    newest = (
        f"SELECT DISTINCT ON ({keys}) * FROM {staging} {where} "
        f"ORDER BY {keys}, ({is_late}) DESC, {_quoted(place)} DESC"
    )
    yield (
        f"INSERT INTO {table} ({', '.join(names)}) "
        f"SELECT {', '.join(names)} FROM ({newest}) AS newest WHERE {kind} <> {retracted} "
        f"ON CONFLICT ({keys}) {where} DO UPDATE SET {changed}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
