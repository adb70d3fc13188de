"""Functions of text, as Spark SQL evaluates them, on typed expressions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Callable, Sequence

import pyarrow as pa

from transom.sql.interpreter.text_vectors import (
    PERCENT,
    concatenation,
    ilike_vector,
    joined_texts,
    like_vector,
    location_vector,
    substring_vector,
    trim_vector,
)
from transom.sql.interpreter.typed_expression import Row, TypedExpression, combined, converted, strict
from transom.sql.interpreter.types import BOOL, INT, STRING, unsupported
from transom.sql.interpreter.vectors import Vector

NativeForm = Callable[..., Callable[[pa.Array], Any] | None]  # from constants to a vector form

LONGEST_PADDING = 1 << 20  # characters; a longer text is a mistake, and would fill the memory


def as_text(arg: TypedExpression) -> TypedExpression:
    """The argument as a string."""
    return converted(arg, STRING)


def of_text(
    type: pa.DataType, function: Callable[..., Any], native: NativeForm | None = None
) -> Callable[[Sequence[TypedExpression]], TypedExpression]:
    """A builder for a null-strict function whose arguments are all strings."""

    def build(args: Sequence[TypedExpression]) -> TypedExpression:
        texts = [as_text(arg) for arg in args]
        return strict(type, function, *texts, vector=with_constants(native, texts))

    return build


def of_text_and_numbers(
    function: Callable[..., Any], integers: Sequence[int], native: NativeForm | None = None
) -> Callable[[Sequence[TypedExpression]], TypedExpression]:
    """A builder for a function from strings, and integers at these places, to a string."""

    def build(args: Sequence[TypedExpression]) -> TypedExpression:
        parts = [converted(arg, INT if at in integers else STRING) for at, arg in enumerate(args)]
        return strict(STRING, function, *parts, vector=with_constants(native, parts))

    return build


def with_constants(native: NativeForm | None, args: Sequence[TypedExpression]) -> Callable[..., Any] | None:
    """The vector form of the first argument, if there is one and the other arguments are constants."""
    constants = [arg.constant for arg in args[1:]]
    form = None if native is None or None in constants else native(*constants)
    return None if form is None else lambda texts, *rest: form(texts)


# --- patterns ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def like_matcher(pattern: str, escape: str) -> Callable[[str], bool]:
    """The test of a LIKE pattern: the parts between two % are sought in turn, so that no text takes long."""
    parts: list[list[str]] = [[]]
    for part in pattern_parts(pattern, escape):
        if part == "%":
            parts.append([])
        else:
            parts[-1].append("." if part == "_" else re.escape(part[-1]))
    compiled = [re.compile("".join(part), re.DOTALL) for part in parts]
    first, middle, last = compiled[0], compiled[1:-1], compiled[-1]
    if len(parts) == 1:
        return lambda value: first.fullmatch(value) is not None
    first_size, last_size = len(parts[0]), len(parts[-1])

    def matches_parts(value: str) -> bool:
        at, end = first_size, len(value) - last_size
        if at > end or not first.match(value) or not last.fullmatch(value, end):
            return False
        for each in middle:
            found = each.search(value, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches_parts


def like(
    arg: TypedExpression, pattern: TypedExpression, escape: str = "\\", ignore_case: bool = False
) -> TypedExpression:
    """`x LIKE pattern`, in which % and _ are plain characters after the escape character; also ILIKE."""

    def function(value: str, wanted: str) -> bool:
        if ignore_case:
            value, wanted = value.lower(), wanted.lower()
        return like_matcher(wanted, escape)(value)

    text, wanted = as_text(arg), as_text(pattern)
    vector = None
    if isinstance(wanted.constant, str):
        vector = constant_like(wanted.constant, escape, ignore_case, function)
    return strict(BOOL, function, text, wanted, vector=vector)


def constant_like(
    pattern: str, escape: str, ignore_case: bool, function: Callable[[str, str], bool]
) -> Callable[..., Any]:
    """The vector form of LIKE and ILIKE with a constant pattern."""
    parts = pattern_parts(pattern.lower() if ignore_case else pattern, escape)
    wild = {"%": PERCENT, "_": None}
    tokens = [wild[part] if part in wild else part[-1] for part in parts]
    if ignore_case:
        form = ilike_vector(tokens, lambda value: function(value, pattern))
    else:
        form = like_vector(tokens)
    return lambda texts, _: form(texts)


def pattern_parts(pattern: str, escape: str) -> list[str]:
    """The characters of a LIKE pattern, each with the escape character before it."""
    return re.findall(rf"{re.escape(escape)}.|.", pattern, re.DOTALL)


@lru_cache(maxsize=4096)
def regular_expression(pattern: str) -> re.Pattern[str]:
    """A Java regular expression in Python; Java's character classes are ASCII by default."""
    return re.compile(pattern, re.ASCII)


def matches(arg: TypedExpression, pattern: TypedExpression) -> TypedExpression:
    """`x RLIKE pattern`: whether the regular expression occurs anywhere in the text."""
    if isinstance(pattern.constant, str):
        try:
            regular_expression(pattern.constant)
        except re.error as error:
            raise unsupported(f"the regular expression {pattern.constant!r} ({error})") from None
    return strict(BOOL, lambda value, wanted: regular_expression(wanted).search(value) is not None,
                  as_text(arg), as_text(pattern))  # fmt: skip


# --- parts of texts ----------------------------------------------------------------------------


def concatenated(args: Sequence[TypedExpression]) -> TypedExpression:
    """`concat(...)`: all arguments as text, one after the other."""
    return strict(
        STRING, lambda *values: "".join(values), *map(as_text, args), vector=concatenation if args else None
    )


def joined(args: Sequence[TypedExpression]) -> TypedExpression:
    """`concat_ws(separator, ...)`: nulls are skipped, arrays contribute their elements."""
    separator, *rest = args
    parts = [arg if pa.types.is_list(arg.type) else as_text(arg) for arg in rest]
    for part in parts:
        if pa.types.is_list(part.type) and not pa.types.is_string(part.type.value_type):
            raise unsupported(f"concat_ws() of {part.type}")
    between = as_text(separator)

    def of(row: Row) -> str | None:
        mark = between.of(row)
        if mark is None:
            return None
        values: list[str] = []
        for part in parts:
            value = part.of(row)
            values += value if isinstance(value, list) else [value]
        return str(mark.join(value for value in values if value is not None))

    if any(pa.types.is_list(part.type) for part in parts):
        return TypedExpression(STRING, of)
    args = [between, *parts]
    return combined(STRING, of, args, lambda table: joined_texts(table, table.value(between), parts))


def substring(args: Sequence[TypedExpression]) -> TypedExpression:
    """`substring(text, start, length)`: the start counts from 1, or back from the end when negative."""

    def function(value: str, place: int, count: int = 1 << 31) -> str:
        begin = place - 1 if place > 0 else len(value) + place if place < 0 else 0
        return value[max(begin, 0) : max(begin + count, 0)]

    parts = [as_text(args[0]), *(converted(number, INT) for number in args[1:])]
    return strict(STRING, function, *parts, vector=with_constants(substring_vector, parts))


def left(value: str, count: int) -> str:
    """The first characters."""
    return value[: max(count, 0)]


def right(value: str, count: int) -> str:
    """The last characters."""
    return value[-count:] if count > 0 else ""


def trimmed(position: str, arg: TypedExpression, characters: TypedExpression | None) -> TypedExpression:
    """`trim`, `ltrim` and `rtrim`: spaces, or the given characters, off both ends or one of them."""
    strip = {"BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}[position]
    rest = () if characters is None else (as_text(characters),)
    parts = [as_text(arg), *rest]
    vector = with_constants(lambda what=" ": trim_vector(position, what), parts)
    return strict(
        STRING, lambda value, what=" ": strip(value, what) if what else value, *parts, vector=vector
    )


def replaced(value: str, search: str, replacement: str = "") -> str:
    """Every occurrence of a text replaced by another."""
    return value.replace(search, replacement) if search else value


def split_part(value: str, delimiter: str, place: int) -> str | None:
    """The part between delimiters, counted from 1, or back from the end when negative; empty if there is none."""
    parts = value.split(delimiter) if delimiter else [value]
    if place == 0:
        return None
    at = place - 1 if place > 0 else len(parts) + place
    return parts[at] if 0 <= at < len(parts) else ""


def substring_index(value: str, delimiter: str, count: int) -> str:
    """Everything before the delimiter's nth occurrence, or after it when n is negative."""
    if not delimiter or count == 0:
        return ""
    parts = value.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def padded(side: str) -> Callable[..., str]:
    """`lpad` and `rpad`: filled up, or cut, to a number of characters."""

    def function(value: str, length: int, padding: str = " ") -> str:
        missing = min(length, LONGEST_PADDING) - len(value)
        if missing <= 0 or not padding:
            return value[: max(length, 0)]
        fill = (padding * (missing // len(padding) + 1))[:missing]
        return fill + value if side == "left" else value + fill

    return function


def located(value: str, search: str) -> int:
    """Where a text first occurs in another, counted from 1; 0 if it does not."""
    return value.find(search) + 1


def located_from(args: Sequence[TypedExpression]) -> TypedExpression:
    """`locate(search, text, from)` and `position(search, text, from)`."""
    search, value, *start = args

    def function(wanted: str, whole: str, place: int = 1) -> int:
        if not wanted:
            return int(place > 0)
        return whole.find(wanted, place - 1) + 1 if place > 0 else 0

    parts = [as_text(search), as_text(value), *(converted(each, INT) for each in start)]
    wanted = parts[0].constant
    if isinstance(wanted, str) and not start:
        locate = location_vector(wanted, lambda whole: located(whole, wanted))

        def vector(_: Any, texts: Any) -> Vector:
            return locate(texts)

        return strict(INT, function, *parts, vector=vector)
    return strict(INT, function, *parts)


def translated(value: str, search: str, replacement: str) -> str:
    """Each character of `search` replaced by the one at its place in `replacement`, or removed."""
    table: dict[str, str] = {}
    for at, character in enumerate(search):
        table.setdefault(character, replacement[at] if at < len(replacement) else "")
    return "".join(table.get(character, character) for character in value)


def capitalized(value: str) -> str:
    """`initcap`: the first letter of each word in upper case, the others in lower case."""
    return " ".join(word[:1].title() + word[1:].lower() for word in value.split(" "))


def repeated(value: str, times: int) -> str:
    """The text several times over."""
    return value * max(min(times, LONGEST_PADDING // max(len(value), 1)), 0)
