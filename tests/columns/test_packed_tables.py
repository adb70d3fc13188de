"""Tables as IPC streams."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.columns.packed_tables import packed_stream, unpacked_stream

TABLES = {
    "numbers and texts": pa.table({"x": pa.array([1, None, 3]), "y": pa.array(["a", "", None])}),
    "no rows": pa.table({"x": pa.array([], pa.float64())}),
    "no columns": pa.table({}),
    "several chunks": pa.concat_tables([pa.table({"x": [1.5]}), pa.table({"x": [2.5, 3.5]})]),
    "a slice": pa.table({"x": ["long", "longer", "longest"]}).slice(1, 1),
    "metadata": pa.table({"x": [1]}).replace_schema_metadata({"version": "1"}),
    "nested": pa.table({"x": pa.array([{"a": [1, 2]}, None])}),
    "a dictionary": pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()}),
    "a dictionary in a struct": pa.table(
        {"x": pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], ["d"])}
    ),
    "decimals and times": pa.table(
        {"d": pa.array([1, None], pa.decimal128(10, 2)), "t": pa.array([0, 1], pa.timestamp("us", "UTC"))}
    ),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_stream_is_the_one_that_arrow_writes(table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed = packed_stream(table)
    assert packed == bytes(sink.getvalue())
    read = unpacked_stream(packed)
    assert read == table and read.schema.metadata == table.schema.metadata
