"""Secrets in options: `${env:NAME}` and `${file:PATH}` stand for values that are read when they are used.

Only the text with the reference is stored or shown. A value that was read is removed from error messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transom.errors import SettingError

_REFERENCE = re.compile(r"\$(?P<escape>\$)?\{(?P<kind>\w*):?(?P<where>[^}]*)\}")
_KINDS = ("env", "file")
HIDDEN_VALUE = "***"
_SHORTEST = 4  # characters: shorter values would remove ordinary words from messages
_values: set[str] = set()  # those that were read; kept in memory only


def option_texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Options as Spark takes them: texts, with booleans in lower case.

    >>> option_texts({"header": True, "maxOffsetsPerTrigger": 1000})
    {'header': 'true', 'maxOffsetsPerTrigger': '1000'}
    """
    given = options or {}
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in given.items()}


def with_secrets(options: Mapping[str, Any] | None) -> dict[str, str]:
    """The options with values in place of references; SettingError if one can't be read."""
    return {name: _resolved(name, text) for name, text in option_texts(options).items()}


def with_absolute_files(options: Mapping[str, str], base: Path) -> dict[str, str]:
    """The options with references to files made relative to a directory."""

    def absolute(found: re.Match[str]) -> str:
        if found["escape"] or found["kind"] != "file":
            return found[0]
        return f"${{file:{base / found['where']}}}"

    return {name: _REFERENCE.sub(absolute, text) for name, text in options.items()}


def without_secrets(text: str) -> str:
    """A text for messages, in which no value of a secret is left."""
    for value in sorted(_values, key=len, reverse=True):
        text = text.replace(value, HIDDEN_VALUE)
    return text


def _resolved(option: str, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found["escape"]:
            return found[0][1:]
        read = _READERS.get(found["kind"])
        if read is None:
            raise SettingError(
                f"option {option}: {found[0]} is not a reference; write ${{env:NAME}} or ${{file:PATH}}, "
                "and $${ for a plain ${"
            )
        secret = read(option, found["where"])
        if len(secret) >= _SHORTEST:
            _values.add(secret)
        return secret

    return _REFERENCE.sub(value, text)


def _of_environment(option: str, name: str) -> str:
    if name not in os.environ:
        raise SettingError(f"option {option}: the environment variable {name} is not set")
    return os.environ[name]


def _of_file(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"option {option}: {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"option {option}: {path}: this is not UTF-8 text") from None


_READERS: Mapping[str, Callable[[str, str], str]] = dict(
    zip(_KINDS, (_of_environment, _of_file), strict=True)
)
