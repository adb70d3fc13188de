"""The rows of a table of Delta Lake as it is now, or was in a version: what a static table reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from transom.backends.arrow_types import plain_table
from transom.backends.delta_table import DeltaLocation, delta_errors
from transom.errors import SettingError

VERSION_AS_OF = "versionAsOf"


class DeltaRows:
    """A table whose rows are read at once."""

    def __init__(self, path: str | None, options: Mapping[str, Any] | None):
        self.location, chosen = DeltaLocation.of(path, options or {}, (VERSION_AS_OF,))
        number = chosen.get(VERSION_AS_OF)
        if number is not None and not number.isdecimal():
            raise SettingError(f"{VERSION_AS_OF}: expected the number of a version, not {number}")
        self._version = None if number is None else int(number)

    def version(self) -> int:
        """The number of the version that is read now."""
        return int(self.location.open().version()) if self._version is None else self._version

    def read(self) -> pa.Table:
        """All rows."""
        table = self.location.open(self._version)
        with delta_errors(f"{self.location.path} can't be read"):
            rows = pa.table(table.scan())
        return plain_table(rows)
