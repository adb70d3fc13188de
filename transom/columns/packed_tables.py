"""Tables as bytes: IPC streams of Arrow."""

from __future__ import annotations

import pyarrow as pa

# Types whose columns need no message for dictionaries: neither nested nor of extensions.
_PLAIN = frozenset(
    kind.id
    for kind in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(),
        pa.large_binary(), pa.date32(), pa.date64(), pa.timestamp("us"), pa.duration("us"), pa.decimal128(1),
        pa.decimal256(1),
    )
)  # fmt: skip
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def packed_stream(table: pa.Table) -> bytes:
    """A table as an IPC stream that is not compressed.

    A stream is the message of the schema, one for each record batch, and an end. For a small table, writing these one
    by one takes half the time that Arrow's writer takes.

    >>> unpacked_stream(packed_stream(pa.table({"x": [1, 2]}))).to_pydict()
    {'x': [1, 2]}
    """
    schema = table.schema
    if all(kind.id in _PLAIN for kind in schema.types):
        batches = (batch.serialize() for batch in table.to_batches())
        return b"".join((schema.serialize(), *batches, _END_OF_STREAM))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked_stream(packed: bytes) -> pa.Table:
    """The table of an IPC stream."""
    return pa.ipc.open_stream(packed).read_all()
