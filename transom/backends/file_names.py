"""What the names of files tell about their format."""

from __future__ import annotations

import os
from collections.abc import Sequence

from transom.errors import SettingError

FORMAT_OF_EXTENSION = {
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "tsv": "csv",
    "parquet": "parquet",
    "orc": "orc",
}
FILES_TO_INFER_FROM = 8  # files that are read to infer a schema
COMPRESSED = frozenset({"gz", "bz2", "zst", "deflate", "snappy", "lz4"})


def format_of(names: Sequence[str]) -> str:
    """The format that the extensions of all names tell.

    >>> format_of(["a.json", "b.jsonl.gz"])
    'json'
    """
    formats = {FORMAT_OF_EXTENSION.get(_extension(name)) for name in names}
    if len(formats) != 1 or None in formats:
        shown = ", ".join(sorted(os.path.basename(name) for name in names)[:3])
        readable = ", ".join(dict.fromkeys(FORMAT_OF_EXTENSION.values()))
        raise SettingError(f"can't tell the format from the names ({shown}): give it, one of {readable}")
    return str(formats.pop())


def is_tab_separated(names: Sequence[str]) -> bool:
    """Whether all names say that columns are separated by tabs."""
    return all(_extension(name) == "tsv" for name in names)


def _extension(name: str) -> str:
    parts = os.path.basename(name).lower().split(".")
    if len(parts) > 2 and parts[-1] in COMPRESSED:
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""
