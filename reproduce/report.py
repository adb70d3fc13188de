"""The output of an experiment: tables as CSV, and lines that compare a paper's numbers with ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """The settings of a run."""

    seeds: int = 3
    short: bool = False
    data: Path | None = None  # the directory of recorded streams

    def seconds(self, full: int) -> int:
        """The length in seconds of a stream that has `full` seconds in the thesis."""
        return full // 10 if self.short else full

    def with_one_seed_if_short(self) -> Options:
        """These settings, but with one seed if the run is short."""
        return replace(self, seeds=1) if self.short else self


@dataclass(frozen=True)
class Line:
    """A number of the thesis and our number."""

    where: str
    what: str
    thesis: float | None
    ours: float
    unit: str = "%"
    note: str = ""


@dataclass
class Report:
    """An experiment's tables by file name, and its lines."""

    tables: dict[str, Sequence[Row]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def __add__(self, other: Report) -> Report:
        return Report(self.tables | other.tables, self.lines + other.lines)


def write(report: Report, directory: Path) -> None:
    """Write every table as CSV and the comparison as Markdown."""
    write_tables(report.tables, directory)
    (directory / "comparison.md").write_text(markdown(report.lines), encoding="utf-8")


def write_tables(tables: Mapping[str, Sequence[Row]], directory: Path) -> None:
    """Write every table as CSV."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        if rows:
            with (directory / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def markdown(lines: Iterable[Line]) -> str:
    """The comparison as a Markdown table."""
    text = ["| where | what | thesis | ours | |", "| --- | --- | ---: | ---: | --- |"]
    for line in lines:
        thesis = "" if line.thesis is None else _number(line.thesis, line.unit)
        cells = (line.where, line.what, thesis, _number(line.ours, line.unit), line.note)
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "none yet"
    return f"{value:,.2f} {unit}".strip()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else round(value, 4) if abs(value) >= 0.01 else float(f"{value:.4g}")
    return value
