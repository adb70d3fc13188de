"""Functions of text on Arrow arrays; texts beyond ASCII are computed one by one where Arrow differs from Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.sql.interpreter.distinct_values import by_distinct
from transom.sql.interpreter.types import BOOL, STRING
from transom.sql.interpreter.vectors import Vector, VectorNode, VectorTable, any_mask, array_of, vector_of

Native = Callable[[pa.Array], pa.Array]


def of_arrow(native: Native) -> Callable[[pa.Array], Vector]:
    """A vector form from a function of one Arrow array of texts."""
    return lambda texts: vector_of(native(texts))


def is_ascii(texts: pa.Array) -> bool:
    """Whether all texts of an array are ASCII."""
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return True
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)
    octets = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return not len(octets) or int(octets.max()) < 128


def of_ascii(
    type: pa.DataType, native: Native, function: Callable[[str], Any]
) -> Callable[[pa.Array], Vector]:
    """A vector form that is native for ASCII; other texts are computed by a function of one text."""
    others = by_distinct(type, function, [STRING])

    def compute(texts: pa.Array) -> Vector:
        if is_ascii(texts):
            return vector_of(native(texts))
        simple = pc.string_is_ascii(texts)
        where = np.flatnonzero(vector_of(pc.invert(simple.fill_null(True))).values)
        rest = others([texts.take(pa.array(where))], None, None)
        places = np.arange(len(texts))
        places[where] = len(texts) + np.arange(len(where))
        parts = [native(texts), array_of(rest, type, len(where))]
        return vector_of(pa.concat_arrays(parts).take(pa.array(places)))

    return compute


# --- parts ---------------------------------------------------------------------------------------


def substring_vector(place: int, count: int | None = None) -> Callable[[pa.Array], Vector]:
    """`substring(x, place, count)` with constants."""
    if place > 0 or place == 0:
        start = max(place - 1, 0)
        return sliced(start, None if count is None else max(start + count, 0))
    if count is None or place + count >= 0:
        return sliced(place, None)
    return sliced(place, place + count)


def sliced(start: int, stop: int | None) -> Callable[[pa.Array], Vector]:
    """The characters from one place to another, counted like those of Python's slices."""
    if stop is not None and (stop == 0 or ((start >= 0) == (stop >= 0) and stop <= start)):
        return lambda texts: vector_of(pc.utf8_slice_codeunits(texts, 0, 0))
    return lambda texts: vector_of(pc.utf8_slice_codeunits(texts, start, stop))


def right_vector(count: int) -> Callable[[pa.Array], Vector]:
    """`right(x, count)`."""
    return sliced(-count, None) if count > 0 else sliced(0, 0)


def trim_vector(position: str, characters: str) -> Callable[[pa.Array], Vector]:
    """`trim`, `ltrim` and `rtrim` of constant characters."""
    if not characters:
        return lambda texts: Vector(texts)
    trim = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}[position]
    return lambda texts: vector_of(trim(texts, characters))


def padding_vector(side: str, length: int, padding: str, longest: int) -> Callable[[pa.Array], Vector] | None:
    """`lpad` and `rpad` with one constant character."""
    if len(padding) != 1 or length <= 0:
        return None
    pad = pc.utf8_lpad if side == "left" else pc.utf8_rpad
    width = min(length, longest)
    return lambda texts: vector_of(pad(pc.utf8_slice_codeunits(texts, 0, length), width, padding))


def replacement_vector(search: str, replacement: str = "") -> Callable[[pa.Array], Vector]:
    """`replace(x, search, replacement)` with constants."""
    if not search:
        return lambda texts: Vector(texts)
    return lambda texts: vector_of(pc.replace_substring(texts, search, replacement))


def concatenation(*texts: pa.Array) -> Vector:
    """All texts, one after the other."""
    size = next((len(each) for each in texts if len(each) != 1), 1)
    if size == 0:
        return vector_of(pa.array([], STRING))
    parts = [each[0] if len(each) == 1 and size != 1 else each for each in texts]
    return vector_of(pc.binary_join_element_wise(*parts, pa.scalar("")))


# --- patterns ------------------------------------------------------------------------------------


def like_vector(tokens: Sequence[str | None]) -> Callable[[pa.Array], Vector]:
    """LIKE by the parts of a constant pattern: characters, "%" and "_" as wildcards are `PERCENT` and None."""
    plain = [token for token in tokens if token is not None and token is not PERCENT]
    text, wild = "".join(plain), len(tokens) - len(plain)
    ends = (bool(tokens) and tokens[0] is PERCENT, bool(tokens) and tokens[-1] is PERCENT)
    if wild == 0:
        return lambda texts: vector_of(pc.equal(texts, pa.scalar(text)))
    if wild == 1 and ends[1]:
        return lambda texts: vector_of(pc.starts_with(texts, text))
    if wild == 1 and ends[0]:
        return lambda texts: vector_of(pc.ends_with(texts, text))
    if wild == 2 and all(ends):
        return lambda texts: vector_of(pc.match_substring(texts, text))
    parts = (".*" if token is PERCENT else "." if token is None else escaped(token) for token in tokens)
    pattern = rf"(?s)\A{''.join(parts)}\z"
    return lambda texts: vector_of(pc.match_substring_regex(texts, pattern))


PERCENT = "any characters"  # told apart from texts by identity


def escaped(character: str) -> str:
    """A character in a regular expression of RE2."""
    return "\\x00" if character == "\0" else re.escape(character) if character.isascii() else character


def ilike_vector(
    tokens: Sequence[str | None], function: Callable[[str], bool]
) -> Callable[[pa.Array], Vector]:
    """ILIKE: the pattern's parts are in lower case."""
    like = like_vector(tokens)
    return of_ascii(BOOL, lambda texts: array_of(like(pc.ascii_lower(texts)), BOOL, len(texts)), function)


def location_vector(search: str, function: Callable[[str], int]) -> Callable[[pa.Array], Vector]:
    """Where a constant text first occurs, counted from 1; 0 if it does not."""

    def native(texts: pa.Array) -> pa.Array:
        return pc.add(pc.find_substring(texts, search), pa.scalar(1, pa.int32())).cast(pa.int32())

    return of_ascii(pa.int32(), native, function)


def joined_texts(table: VectorTable, separator: Vector, parts: Sequence[VectorNode]) -> Vector:
    """`concat_ws(separator, ...)`: nulls are skipped."""
    vectors = [table.value(part) for part in parts]
    by_row = any_mask(each.by_row for each in (separator, *vectors))
    mark, *arrays = (array_of(each, STRING, table.num_rows) for each in (separator, *vectors))
    is_null = [pc.is_null(array) for array in arrays]
    if not arrays:
        arrays = [pc.if_else(pc.is_null(mark), mark, pa.scalar(""))]
    elif reduce(pc.and_, is_null).true_count:  # Arrow leaves out the rows in which all parts are null
        arrays[0] = pc.if_else(reduce(pc.and_, is_null), pa.scalar(""), arrays[0])
    found = vector_of(pc.binary_join_element_wise(*arrays, mark, null_handling="skip"))
    return Vector(found.values, found.nulls, by_row)
