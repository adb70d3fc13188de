"""`get_json_object(text, path)`: a part of a JSON text, as Spark reads and prints it.

Spark reads the text with Jackson up to the end of its first value: quotes can be single, and text may contain control
characters. Paths of keys and indexes are evaluated here. Spark evaluates the others: with `[*]` it prints characters
outside of the basic plane in two ways, and the spaces in a path count at some places only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from transom.errors import SQLError
from transom.sql.interpreter.casts import java_text
from transom.sql.interpreter.typed_expression import TypedExpression, strict
from transom.sql.interpreter.types import STRING, is_text, unsupported

PathStep = str | int  # a key of an object, or an index of an array

# A key must not begin with a space, which Spark skips, or be *, which stands for all keys.
_STEP = re.compile(r"\.([^\s.\[*][^.\[]*)|\['([^\s'?*][^'?]*)'\]|\[([0-9]{1,9})\]")
_TOKEN = re.compile(
    r"""[{}\[\],:]
    |"(?:[^"\\]++|\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4}))*+"
    |'(?:[^'\\]++|\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
    |-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?
    |true|false|null
    |[^ \t\r\n]""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_PRINTED = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
# Jackson's limits: a text beyond them is no JSON.
_MOST_DIGITS, _DEEPEST, _LONGEST_KEY = 1000, 1000, 50_000


def json_object(args: Sequence[TypedExpression]) -> TypedExpression:
    """`get_json_object(text, path)` with a constant path."""
    text, path = args
    if not is_text(text.type):
        raise SQLError(f"get_json_object() and value:path read JSON text, not {text.type}")
    steps = path_steps(path.constant) if isinstance(path.constant, str) else None
    if not steps:
        raise unsupported("get_json_object() with a path that is not made of constant keys and indexes")
    # Java before 19 prints other digits of doubles.
    return strict(STRING, lambda value: json_value(value, steps), text, is_exact=False)


@lru_cache(maxsize=4096)
def path_steps(path: str) -> tuple[PathStep, ...] | None:
    """The keys and indexes of a path; None if it has other parts.

    >>> path_steps("$.user.tags[0]['first name']"), path_steps("$.tags[*]")
    (('user', 'tags', 0, 'first name'), None)
    """
    steps: list[PathStep] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    return tuple(steps) if path.startswith("$") else None


def json_value(text: str, steps: tuple[PathStep, ...]) -> str | None:
    """The value at a path of at least one step; None if there is none, or the text is no JSON.

    >>> json_value('{"a": [1.50, "x", {"b": null}]}', ("a",)), json_value("{'a': ['x']}", ("a", 0))
    ('[1.5,"x",{"b":null}]', 'x')
    """
    tokens = _TOKEN.findall(text)
    ends = _ends(tokens)
    if ends is None:
        return None
    at = _found(tokens, ends, 0, steps, 0)
    if at is None:
        return None
    token = tokens[at]
    if token[0] in "\"'":
        value = _text_of(token)
        return None if _SURROGATE.search(value) else value  # half of a pair is not text
    return "".join(_printed(each) for each in tokens[at : ends.get(at, at) + 1])


def _ends(tokens: list[str]) -> dict[int, int] | None:
    """Where each object and array ends; None if the first value is no object or array, or no JSON."""
    if not tokens or tokens[0] not in ("{", "["):
        return None
    ends: dict[int, int] = {}
    opened: list[int] = []
    expected = "value"
    in_object = False
    for at, token in enumerate(tokens):
        first = token[0]
        if token in ("}", "]"):
            is_closed_well = expected in ("comma", "first key" if token == "}" else "first value")
            if not is_closed_well or in_object != (token == "}"):
                return None
            ends[opened.pop()] = at
            if not opened:
                return ends
            in_object, expected = tokens[opened[-1]] == "{", "comma"
        elif expected in ("value", "first value"):
            if token in ("{", "["):
                opened.append(at)
                if len(opened) > _DEEPEST:
                    return None
                in_object = token == "{"
                expected = "first key" if in_object else "first value"
            elif _is_scalar(token, first):
                expected = "comma"
            else:
                return None
        elif expected in ("key", "first key"):
            if first not in "\"'" or len(token) < 2 or _is_long_key(token):
                return None
            expected = "colon"
        elif expected == "colon":
            if token != ":":
                return None
            expected = "value"
        elif token == ",":
            expected = "key" if in_object else "value"
        else:
            return None
    return None


def _is_scalar(token: str, first: str) -> bool:
    if first in "\"'":
        return len(token) > 1
    if token in ("true", "false", "null"):
        return True
    if not token[-1].isdigit() or not token.isascii():
        return False
    return len(token) <= _MOST_DIGITS or _digits(token) <= _MOST_DIGITS


def _digits(number: str) -> int:
    """The digits that Jackson counts: not the zero of `0.5` and `0e5`, but that of `0.5e5`."""
    digits = sum(map(str.isdigit, number))
    uncounted = number.lstrip("-")[0] == "0" and not ("." in number and "e" in number.lower())
    return digits - 1 if uncounted else digits


def _is_long_key(token: str) -> bool:
    return len(token) > _LONGEST_KEY and len(_text_of(token)) > _LONGEST_KEY


def _found(
    tokens: list[str], ends: dict[int, int], at: int, steps: tuple[PathStep, ...], done: int
) -> int | None:
    """The place of the value at a path; of equal keys the first that has the rest of the path counts."""
    if done == len(steps):
        return at
    step, end = steps[done], ends.get(at)
    if end is None or (tokens[at] == "{") != isinstance(step, str):
        return None
    at, index = at + 1, 0
    while at < end:
        if isinstance(step, str):
            value = at + 2
            if tokens[value] != "null" and _text_of(tokens[at]) == step:
                found = _found(tokens, ends, value, steps, done + 1)
                if found is not None:
                    return found
        else:
            value = at
            if index == step:
                return _found(tokens, ends, value, steps, done + 1)
            index += 1
        at = ends.get(value, value) + 2  # after the comma
    return None


def _text_of(token: str) -> str:
    """The text of a JSON string."""
    if "\\" not in token:
        return token[1:-1]
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _unescaped(found[2]), token)
    # The two halves of a pair become one character.
    return text[1:-1].encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescaped(character: str) -> str:
    return _ESCAPES.get(character, character)


def _printed(token: str) -> str:
    """A token as Jackson prints it."""
    first = token[0]
    if first in "\"'":
        return f'"{_PRINTED.sub(_escape, _text_of(token))}"'
    if first not in "-0123456789":
        return token
    if token.lstrip("-").isdigit():
        return "0" if token == "-0" else token
    value = float(token)
    return java_text(value, 64) if math.isfinite(value) else f'"{java_text(value, 64)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    printed = json.dumps(character)
    return re.sub(r"\\u....", lambda code: "\\u" + code[0][2:].upper(), printed[1:-1])
