"""Small runs of the experiments on shared lookups: all systems give the same answers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reproduce.__main__ import app
from reproduce.report import Options
from reproduce.shared_aggregates import measures as sharing
from reproduce.shared_aggregates import ordered_sharing, response_times, timegram
from reproduce.shared_aggregates.measures import Bar, affordable, speedups
from reproduce.shared_aggregates.response_times import LARGEST, MIXED, Workload

SHORT = Options(seeds=1, short=True)


def test_windows_are_spread_evenly_up_to_the_largest() -> None:
    assert [size for _, size in Workload("uniform", 4, 1, 10).window_functions] == [250, 500, 750, 1000]
    sizes = [size for _, size in Workload("uniform", 10_000, 1, 10).window_functions]
    assert (min(sizes), max(sizes), len(sizes)) == (1, LARGEST, 10_000)


@pytest.mark.parametrize(("ratio", "lookups"), [(1, 80), (3, 24), (10, 8), (11, 0), (0, 0)])
def test_every_query_is_looked_up_after_each_ratio_tuples(
    ratio: int, lookups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[int] = []

    def answers(now: int) -> Iterator[None]:
        looked_up.append(now)
        return iter(())

    quiet = response_times.System(lambda *row: None, lambda *row: None, answers)
    monkeypatch.setattr(response_times, "SYSTEMS", {"quiet": lambda queries: quiet})
    workload = Workload("uniform", 8, ratio, 10)
    response_times.seconds("quiet", workload, seed=0)
    assert len(looked_up) * 8 == workload.lookups == lookups


def answers(system: str, workload: Workload) -> list[list[Any]]:
    """A system's answer to each query at the end of a stream: a list of one value, or of two bounds."""
    built = response_times.SYSTEMS[system](workload.window_functions)
    for time, value in enumerate(response_times.stream(workload, seed=3)):
        built.insert(time, value)
    return [list(answer) if isinstance(answer, tuple) else [answer] for answer in built.answers(time)]


@pytest.mark.parametrize("functions", [("max",), ("min",), MIXED], ids=" ".join)
@pytest.mark.parametrize("data", response_times.DATA)
def test_all_systems_give_the_same_answers(functions: tuple[str, ...], data: str) -> None:
    workload = Workload(data, 10, 1, 300, functions)
    naive = [answer for (answer,) in answers("naive", workload)]
    assert [answer for (answer,) in answers("exact", workload)] == pytest.approx(naive)
    for answer, (low, high) in zip(naive, answers("timegram", workload), strict=True):
        assert low <= answer <= high
    if functions != MIXED:
        assert [answer for (answer,) in answers("ordered_sharing", workload)] == naive


def test_ordered_sharing_refuses_what_it_cannot_answer() -> None:
    with pytest.raises(ValueError, match="MAX, or for MIN"):
        response_times.ordered_sharing([("max", 10), ("sum", 10)])


@pytest.mark.parametrize(
    ("system", "queries", "tuples"),
    [("naive", 8, 10_000), ("naive", 1000, 20), ("naive", 10_000, 2), ("exact", 10_000, 100)],
)
def test_systems_process_fewer_tuples_with_many_queries(system: str, queries: int, tuples: int) -> None:
    assert affordable(system, queries, 10_000, Options()) == tuples


def row(system: str, cost: float, **more: Any) -> dict[str, Any]:
    base = {
        "data": "uniform",
        "functions": "max",
        "queries": 8,
        "ratio": 1,
        "tuples": 1000,
        "largest_window": 1000,
    }
    return base | {"system": system, "microseconds_per_tuple": cost} | more


def test_systems_are_compared_on_the_same_workload() -> None:
    rows = [
        row("naive", 60.0),
        row("exact", 2.0),
        row("naive", 80.0, ratio=10),
        row("exact", 1.0, ratio=10),
        row("naive", 900.0, queries=1000, tuples=20),
        row("exact", 90.0, queries=1000, tuples=1000),
        row("timegram", 1.0, ratio=100),
    ]
    assert speedups(rows, "naive", "exact") == [30, 80, 10]
    assert speedups(rows, "naive", "exact", ratio=10) == [80]
    assert speedups(rows, "naive", "timegram") == []


@pytest.mark.parametrize(
    ("bar", "line"),
    [
        (Bar("this", 7.5, least=5), ("this", "at least 5 x", "7.5 x", "met")),
        (Bar("this", 4.5, least=5), ("this", "at least 5 x", "4.5 x", "missed")),
        (Bar("this", 2.5, most=2), ("this", "at most 2 x", "2.5 x", "missed")),
        (Bar("this", 1.47), ("this", "", "1.47 x", "")),
    ],
)
def test_a_bar_shows_whether_it_is_met(bar: Bar, line: tuple[str, ...]) -> None:
    assert bar.cells() == line
    assert f"| {' | '.join(line)} |" in sharing.markdown([bar])


@pytest.mark.parametrize("name", timegram.STREAMS)
def test_all_intervals_contain_the_answer(name: str) -> None:
    found = timegram.intervals(name, steps=1500, seed=2)
    assert found["intervals_that_hold_the_answer"] == found["lookups"] == 7500


@pytest.mark.parametrize("paper", ["timegram", "ordered-sharing"])
def test_the_command_writes_tables_and_bars(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "lengths", lambda options: (40,))
    monkeypatch.setattr(sharing, "affordable", lambda system, queries, tuples, options: 10)
    monkeypatch.setattr(sharing, "MANY", (8, 20))
    done = CliRunner().invoke(app, [paper, "--short", "--seeds", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    name = paper.replace("-", "_")
    assert (tmp_path / f"{name}_bars.md").read_text() in done.output
    with (tmp_path / f"{name}_ratios.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {one["system"] for one in rows} == {"naive", "exact", name}
    assert {one["data"] for one in rows} == {"uniform", "gaussian"}


def test_ordered_sharing_has_these_bars() -> None:
    rows = [
        row(system, cost, data=data, ratio=ratio)
        for data in response_times.DATA
        for ratio in (1, 10)
        for system, cost in (("naive", 60.0 / ratio), ("ordered_sharing", 2.0 / ratio), ("exact", 1.0))
    ]
    lookups = [
        row(system, 1.0, data=data, queries=queries, microseconds_per_lookup=cost)
        for data in response_times.DATA
        for queries, cost in ((8, 1.0), (10_000, 3.0))
        for system in ("ordered_sharing", "exact")
    ]
    found = ordered_sharing.bars({"ratios": rows, "queries": [], "lookups": lookups})
    assert [bar.measured for bar in found] == [30, 30, 3, 3, 0.2]
    assert [bar.met for bar in found] == [True, True, False, False, False]
