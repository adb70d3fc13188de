"""Units of a query's values as text: `total=EUR`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transom.errors import SettingError


def units_from_text(pairs: Iterable[str]) -> dict[str, str]:
    """Units by column, from pairs such as `total=EUR`; empty pairs are skipped.

    >>> units_from_text(["total=EUR", " delay = min ", ""])
    {'total': 'EUR', 'delay': 'min'}
    """
    units = {}
    for pair in filter(str.strip, pairs):
        column, equals, unit = map(str.strip, pair.partition("="))
        if not equals or not column:
            raise SettingError(f"not a unit of a column: {pair!r}; write COLUMN=UNIT, such as total=EUR")
        units[column] = unit
    return units


def units_to_text(units: Mapping[str, str]) -> str:
    """Units by column as text.

    >>> units_to_text({"total": "EUR", "delay": "min"})
    'total=EUR, delay=min'
    """
    return ", ".join(f"{column}={unit}" for column, unit in units.items())
