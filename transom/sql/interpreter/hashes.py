"""Spark's two hash functions, so that the interpreter and Spark give the same keys.

`xxhash64` is XXH64 and `hash` is MurmurHash3 (32 bits), each over the values one after the other with the seed 42.
"""

from __future__ import annotations

import math
import struct
from datetime import date
from typing import Any, Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from transom.aggregates.sketches import sketched_count
from transom.errors import SQLError
from transom.sql.interpreter.typed_expression import Row, TypedExpression, combined
from transom.sql.interpreter.types import (
    DATE,
    INT,
    LONG,
    NULL,
    is_decimal,
    is_float,
    is_int,
    is_interval,
    is_text,
    is_timestamp,
    unsupported,
)  # fmt: skip
from transom.sql.interpreter.values import EXACT, wrap
from transom.sql.interpreter.vectors import Vector, VectorTable, dtype_of, either

SEED = 42
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
M64, M32 = (1 << 64) - 1, (1 << 32) - 1

Hash = Callable[[bytes, int], int]


def _left64(value: int, places: int) -> int:
    value &= M64
    return (value << places | value >> (64 - places)) & M64


def _round64(accumulator: int, word: int) -> int:
    return _left64(accumulator + word * P2, 31) * P1 & M64


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of some bytes, as an unsigned number.

    >>> hex(xxh64(b"", 0)), hex(xxh64(b"abc", 0))
    ('0xef46db3751d8e999', '0x44bc2cf5ad770999')
    """
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + P1 + P2) & M64, (seed + P2) & M64, seed & M64, (seed - P1) & M64]
        while at <= size - 32:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round64(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        value = sum(_left64(lane, places) for lane, places in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = (value ^ _round64(0, lane)) * P1 + P4 & M64
    else:
        value = seed + P5
    value = value + size & M64
    while at <= size - 8:
        value = _left64(value ^ _round64(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4 & M64
        at += 8
    if at <= size - 4:
        value = _left64(value ^ struct.unpack_from("<I", data, at)[0] * P1 & M64, 23) * P2 + P3 & M64
        at += 4
    for byte in data[at:]:
        value = _left64(value ^ byte * P5 & M64, 11) * P1 & M64
    value = (value ^ value >> 33) * P2 & M64
    value = (value ^ value >> 29) * P3 & M64
    return value ^ value >> 32


def xxh64_words(words: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """XXH64 of values of 4 or 8 bytes, given as unsigned numbers, each with its own seed.

    >>> words = np.array([1, 2], np.uint32)
    >>> hashes = xxh64_words(words, np.array([42, 7], np.uint64))
    >>> hashes.tolist() == [xxh64(bytes([1, 0, 0, 0]), 42), xxh64(bytes([2, 0, 0, 0]), 7)]
    True
    """
    p1, p2, p3, p4, p5 = (np.uint64(prime) for prime in (P1, P2, P3, P4, P5))
    value = seeds + (p5 + np.uint64(words.dtype.itemsize))
    if words.dtype.itemsize == 8:
        value = _turned(value ^ _turned(words * p2, 31) * p1, 27) * p1 + p4
    else:
        value = _turned(value ^ words.astype(np.uint64) * p1, 23) * p2 + p3
    value = (value ^ value >> np.uint64(33)) * p2
    value = (value ^ value >> np.uint64(29)) * p3
    return value ^ value >> np.uint64(32)


def _turned(values: np.ndarray, places: int) -> np.ndarray:
    return values << np.uint64(places) | values >> np.uint64(64 - places)


def _left32(value: int, places: int) -> int:
    value &= M32
    return (value << places | value >> (32 - places)) & M32


def murmur3(data: bytes, seed: int) -> int:
    """Spark's MurmurHash3: the bytes after the last whole word are mixed in one by one, each with its sign."""
    whole = len(data) - len(data) % 4
    words = [
        *struct.unpack_from(f"<{whole // 4}I", data),
        *(byte - 256 * (byte > 127) for byte in data[whole:]),
    ]
    value = seed & M32
    for word in words:
        value ^= _left32((word & M32) * 0xCC9E2D51, 15) * 0x1B873593 & M32
        value = _left32(value, 13) * 5 + 0xE6546B64 & M32
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & M32
    value = (value ^ value >> 13) * 0xC2B2AE35 & M32
    return value ^ value >> 16


def encoder(type: pa.DataType) -> Callable[[Any], bytes]:
    """How Spark turns a value of this type into the bytes that it hashes."""
    if pa.types.is_boolean(type) or (is_int(type) and type != LONG):
        return lambda value: struct.pack("<i", value)
    if type == LONG or is_timestamp(type) or is_interval(type):
        return lambda value: struct.pack("<q", value)
    if type == DATE:
        return lambda value: struct.pack("<i", (value - date(1970, 1, 1)).days)
    if is_float(type):
        layout = "<f" if type.bit_width == 32 else "<d"
        # -0.0 counts as 0.0, and every NaN as the same.
        return lambda value: struct.pack(layout, math.nan if math.isnan(value) else value + 0.0)
    if is_text(type):
        return lambda value: value.encode()
    if pa.types.is_binary(type):
        return bytes
    if is_decimal(type) and type.precision <= 18:
        return lambda value: struct.pack("<q", int(value.scaleb(type.scale, EXACT)))
    if is_decimal(type):
        return lambda value: _big_endian(int(value.scaleb(type.scale, EXACT)))
    raise unsupported(f"a hash of {type}")


def _big_endian(value: int) -> bytes:
    """The shortest two's complement of an integer, as Java's `BigInteger.toByteArray` gives it."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def hashed(function: Hash, type: pa.DataType, args: Sequence[TypedExpression]) -> TypedExpression:
    """The hash of several values, each with the hash of those before as its seed; nulls are left out."""
    mixers = [(arg.of, mixer(function, arg.type)) for arg in args]

    def of(row: Row) -> int:
        hash = SEED
        for value, mix in mixers:
            hash = mix(value(row), hash)
        return wrap(hash, type.bit_width)

    if function is not xxh64 or any(_word_type(arg.type) is None for arg in args):
        return TypedExpression(type, of)

    def vector(table: VectorTable) -> Vector:
        hashes, by_row = np.full(1, SEED, np.uint64), None
        for arg in args:
            own = table.value(arg)
            by_row = either(by_row, own.by_row)
            mixed = xxh64_words(_words(own.values), hashes)
            hashes = mixed if own.nulls is None else np.where(own.nulls, hashes, mixed)
        return Vector(hashes.view(np.int64), None, by_row)

    return combined(type, of, args, vector)


def _word_type(type: pa.DataType) -> Any:
    """The words that values of a type are hashed as; None if they are not of 4 or 8 bytes."""
    dtype = dtype_of(type)
    if dtype is None or type == NULL:
        return None
    return np.uint64 if np.dtype(dtype).itemsize == 8 else np.uint32


def _words(values: np.ndarray) -> np.ndarray:
    """Numbers as the words that Spark hashes; -0.0 counts as 0.0, and every NaN as the same."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values + values.dtype.type(0))
        return values.view(np.uint64 if values.dtype.itemsize == 8 else np.uint32)
    if values.dtype.itemsize == 8:
        return values.view(np.uint64)
    return values.astype(np.int32).view(np.uint32)


def mixer(function: Hash, type: pa.DataType) -> Callable[[Any, int], int]:
    """How a value of this type is mixed into a hash: as bytes, or field by field, or element by element."""
    if type == NULL:
        return lambda value, seed: seed
    if pa.types.is_struct(type):
        fields = [(field.name, mixer(function, field.type)) for field in type]
        return lambda value, seed: _chained(
            ((value[name], mix) for name, mix in fields) if value else (), seed
        )
    if pa.types.is_list(type):
        mix_element = mixer(function, type.value_type)
        return lambda value, seed: _chained(((element, mix_element) for element in value or ()), seed)
    encode = encoder(type)
    return lambda value, seed: seed if value is None else function(encode(value), seed)


def _chained(parts: Iterable[tuple[Any, Callable[[Any, int], int]]], seed: int) -> int:
    for value, mix in parts:
        seed = mix(value, seed)
    return seed


def xxhash64(args: Sequence[TypedExpression]) -> TypedExpression:
    """`xxhash64(x, ...)`."""
    return hashed(xxh64, LONG, args)


def sketch_estimate(arg: TypedExpression) -> TypedExpression:
    """`hll_sketch_estimate(x)`: the distinct count of a sketch of `hll_sketch_agg`; null if x is no sketch."""
    if not pa.types.is_binary(arg.type):
        raise SQLError(f"hll_sketch_estimate() needs a sketch of hll_sketch_agg(), and this is {arg.type}")

    def estimated(row: Row) -> int | None:
        sketch = arg.of(row)
        return None if sketch is None else sketched_count(sketch)

    return TypedExpression(LONG, estimated)


def hash32(args: Sequence[TypedExpression]) -> TypedExpression:
    """`hash(x, ...)`."""
    return hashed(murmur3, INT, args)
