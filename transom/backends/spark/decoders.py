"""Binary values to columns: JSON, CSV, Avro and Protobuf. A value that can't be decoded becomes a corrupt row."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from pyspark.version import __version__ as spark_version

from transom.backends.connection import Decoder
from transom.backends.connector_packages import format_package
from transom.backends.expressions import quoted
from transom.backends.hidden_columns import CORRUPT, SOURCE_PARTITION
from transom.backends.secrets import option_texts
from transom.backends.spark.failures import failure_text
from transom.backends.spark.types import schema_of
from transom.errors import SettingError, near_miss

_DECODED, _TEXT = "__decoded__", "__text__"


def decoded(rows: DataFrame, decoder: Decoder, schema: str | None, keeps_columns: bool) -> DataFrame:
    """The rows with the decoder's column replaced by the columns that its values hold.

    The other columns stay if they are wanted, unless a decoded one has the same name. `_corrupt_record` holds the text
    of a value that can't be decoded, in Base64 if the format is binary.
    """
    if decoder.column not in rows.columns:
        hint = near_miss(decoder.column, rows.columns)
        raise SettingError(f"decode: there is no column {decoder.column}{hint}")
    if not isinstance(rows.schema[decoder.column].dataType, BinaryType | StringType):
        raise SettingError(f"decode: the column {decoder.column} is neither binary nor text")
    value = F.col(quoted(decoder.column)).cast("binary")
    if decoder.skip_bytes:
        value = F.substring(value, decoder.skip_bytes + 1, 2**31 - 1)
    rows = _DECODERS[decoder.format](rows, value, decoder, schema)
    fields = rows.schema[_DECODED].dataType
    assert isinstance(fields, StructType)
    names = [name for name in fields.names if name != CORRUPT]
    taken = {name.casefold() for name in (*names, CORRUPT, _DECODED, _TEXT, decoder.column)}
    others = [
        name
        for name in rows.columns
        if name.casefold() not in taken and (keeps_columns or name == SOURCE_PARTITION)
    ]
    return rows.select(
        *(F.col(f"{_DECODED}.{quoted(name)}").alias(name) for name in names),
        *map(quoted, others),
        _corrupt(value, decoder, names).alias(CORRUPT),
    )


def _corrupt(value: Column, decoder: Decoder, names: list[str]) -> Column:
    """The text of a value that could not be decoded; null for others, and for a value that is null itself."""
    if decoder.format in ("json", "csv"):
        whole, text = F.col(_DECODED), F.make_valid_utf8(F.col(_TEXT))
        failed = whole.isNull() | whole[CORRUPT].isNotNull() | ~F.is_valid_utf8(F.col(_TEXT))
        return F.when(value.isNotNull() & failed, text)
    # A binary format that fails yields a struct of nulls.
    nothing = F.lit(True)
    for name in names:
        nothing = nothing & F.col(f"{_DECODED}.{quoted(name)}").isNull()
    return F.when(value.isNotNull() & nothing, F.base64(value))


def _text_values(
    parse: Callable[..., Column],
) -> Callable[[DataFrame, Column, Decoder, str | None], DataFrame]:
    def decode(rows: DataFrame, value: Column, decoder: Decoder, schema: str | None) -> DataFrame:
        if schema is None:
            raise SettingError(f"decode: {decoder.format} needs a schema, such as `site int, ts timestamp`")
        fields = schema_of(schema)
        if CORRUPT in fields.names:
            raise SettingError(
                f"the schema has a column {CORRUPT}, which is for values that can't be decoded"
            )
        fields = StructType([*fields.fields, StructField(CORRUPT, StringType())])
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        given = fields if parse is F.from_json else _ddl(fields)
        rows = rows.withColumn(_TEXT, value.cast("string"))
        return rows.withColumn(
            _DECODED, parse(F.col(_TEXT), given, {**option_texts(decoder.options), **ours})
        )

    return decode


def _ddl(fields: StructType) -> str:
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in fields)


def _avro(rows: DataFrame, value: Column, decoder: Decoder, schema: str | None) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro

    text = decoder.file(decoder.schema_file).decode()
    options = {**option_texts(decoder.options), "mode": "PERMISSIVE"}
    return _by_package(rows, "avro", lambda: from_avro(value, text, options))


def _protobuf(rows: DataFrame, value: Column, decoder: Decoder, schema: str | None) -> DataFrame:
    from pyspark.sql.protobuf.functions import from_protobuf

    descriptor = decoder.file(decoder.descriptor_file)
    options = {**option_texts(decoder.options), "mode": "PERMISSIVE"}
    return _by_package(
        rows,
        "protobuf",
        lambda: from_protobuf(value, str(decoder.message), options=options, binaryDescriptorSet=descriptor),
    )


def _by_package(rows: DataFrame, format: str, column: Callable[[], Column]) -> DataFrame:
    """The rows with a decoded column, by a package that may be missing."""
    package = format_package(format, spark_version)
    try:
        rows = rows.withColumn(_DECODED, column())
    except (PySparkException, TypeError) as error:
        text = failure_text(error)
        if isinstance(error, TypeError) or "NOT_LOADED" in str(error) or "JavaPackage" in text:
            raise SettingError(
                f"decode: Spark has no package for {format}: set spark.jars.packages to {package}"
            ) from None
        raise SettingError(f"decode: {format}: {text}") from None
    if not isinstance(rows.schema[_DECODED].dataType, StructType):
        raise SettingError(f"decode: a value of {format} must be a record with fields")
    return rows


_DECODERS: dict[str, Callable[[DataFrame, Column, Decoder, str | None], DataFrame]] = {
    "json": _text_values(F.from_json),
    "csv": _text_values(F.from_csv),
    "avro": _avro,
    "protobuf": _protobuf,
}
