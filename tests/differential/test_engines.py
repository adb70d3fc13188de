"""The same cases on engines of both backends.

On Spark a batch takes a hundred times as long, and what a case draws at random does not depend on the
backend. One case of each way in which rows and state reach Spark is enough there: rows that are pushed,
rows of files, a restart, lookups, state on the executors.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests import case_counts
from tests.differential.cases import alike, case
from tests.differential.lookup_cases import looked_up
from tests.differential.on_engine import check_on_feed, check_on_files
from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = ON_BOTH


def case_seeds(make_engine: EngineFactory, start: int, local: int) -> range:
    """The seeds of a test on a backend: Spark takes one case, the local backend its share of `local`."""
    return case_counts.case_seeds(start, local) if make_engine.name == "local" else range(start, start + 1)


def test_pushed_rows_give_the_oracles_answers(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    for number in case_seeds(make_engine, seed, local=26):
        check_on_feed(case(Random(number)), make_engine, tmp_path / str(number))


def test_rows_of_files_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in case_seeds(make_engine, seed + 50, local=24):
        check_on_files(case(Random(number)), make_engine, tmp_path / str(number))


def test_a_restart_at_every_batch_boundary_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in case_seeds(make_engine, seed + 100, local=12):
        check_on_feed(case(Random(number)), make_engine, tmp_path / str(number), restart=True)


def test_queries_alike_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in case_seeds(make_engine, seed + 150, local=7):
        check_on_files(alike(Random(number + 8)), make_engine, tmp_path / f"{number} from files")
        if make_engine.name == "local":
            check_on_feed(alike(Random(number)), make_engine, tmp_path / f"{number} pushed")
            restarted = tmp_path / f"{number} restarted"
            check_on_feed(alike(Random(number + 4)), make_engine, restarted, restart=True)


def test_lookups_give_the_oracles_answers(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    for number in case_seeds(make_engine, seed + 200, local=5):
        on_executors = tmp_path / f"{number} with the executors"
        check_on_files(looked_up(Random(number + 9)), make_engine, on_executors, state="executors")
        if make_engine.name == "local":
            check_on_feed(looked_up(Random(number)), make_engine, tmp_path / f"{number} pushed")
            restarted = tmp_path / f"{number} restarted"
            check_on_feed(looked_up(Random(number + 3)), make_engine, restarted, restart=True)
            check_on_files(looked_up(Random(number + 6)), make_engine, tmp_path / f"{number} from files")


def test_a_lookup_is_complete_if_shared_stores_saw_the_rows_before_the_query_joined(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    check_on_files(looked_up(Random(31767782)), make_engine, tmp_path)
