"""The same cases on engines of both backends; fewer on Spark, where a batch takes long."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.differential.cases import alike, case
from tests.differential.looking import looked_up
from tests.differential.on_engine import check_on_feed, check_on_files
from tests.engine_factory import ON_BOTH, EngineFactory

pytestmark = ON_BOTH


def cases(make_engine: EngineFactory, local: int, spark: int) -> int:
    """How many cases a test draws on a backend."""
    return local if make_engine.name == "local" else spark


def test_pushed_rows_give_the_oracles_answers(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    for number in range(seed, seed + cases(make_engine, local=20, spark=4)):
        check_on_feed(case(Random(number)), make_engine, tmp_path / str(number))


def test_rows_of_files_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in range(seed + 50, seed + 50 + cases(make_engine, local=20, spark=3)):
        check_on_files(case(Random(number)), make_engine, tmp_path / str(number))


def test_a_restart_at_every_batch_boundary_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in range(seed + 100, seed + 100 + cases(make_engine, local=10, spark=2)):
        check_on_feed(case(Random(number)), make_engine, tmp_path / str(number), restart=True)


def test_queries_alike_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in range(seed + 150, seed + 150 + cases(make_engine, local=6, spark=1)):
        check_on_feed(alike(Random(number)), make_engine, tmp_path / f"{number} pushed")
        check_on_feed(alike(Random(number + 4)), make_engine, tmp_path / f"{number} restarted", restart=True)
        check_on_files(alike(Random(number + 8)), make_engine, tmp_path / f"{number} from files")


def test_lookups_give_the_oracles_answers(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    for number in range(seed + 200, seed + 200 + cases(make_engine, local=4, spark=1)):
        check_on_feed(looked_up(Random(number)), make_engine, tmp_path / f"{number} pushed")
        check_on_feed(
            looked_up(Random(number + 3)), make_engine, tmp_path / f"{number} restarted", restart=True
        )
        check_on_files(looked_up(Random(number + 6)), make_engine, tmp_path / f"{number} from files")
        check_on_feed(
            looked_up(Random(number + 9)), make_engine, tmp_path / f"{number} far", state="executors"
        )
