"""Measurements as rows, and the CSV files that hold them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One measurement of a strategy or a competitor; fields that don't apply are None."""

    experiment: str
    workload: str
    queries: int
    seed: int
    strategy: str
    repeat: int = 0
    seconds: float | None = None
    partial_seconds: float | None = None
    final_seconds: float | None = None
    partial_aggregations: int | None = None
    final_aggregations: int | None = None
    state_bytes: int | None = None
    note: str = ""
    run: str = ""  # when the run began: ratios compare rows of one run


def append(directory: Path, row: Row) -> None:
    """Add a row to its experiment's file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{row.experiment}.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({name: _written(value) for name, value in asdict(row).items()})


def read(directory: Path, experiment: str) -> list[Row]:
    """The rows of an experiment's file; none if there is no file."""
    path = directory / f"{experiment}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_row(line) for line in csv.DictReader(file)]


def latest(rows: Iterable[Row]) -> list[Row]:
    """The rows of the last run."""
    every = list(rows)
    newest = max((row.run for row in every), default="")
    return [row for row in every if row.run == newest]


def _written(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _row(line: dict[str, str]) -> Row:
    given = {}
    for field in fields(Row):
        text = line[field.name]
        if field.type == "str":
            given[field.name] = text
        elif text:
            given[field.name] = float(text) if "float" in str(field.type) else int(text)  # type: ignore[assignment]
    return Row(**given)  # type: ignore[arg-type]
