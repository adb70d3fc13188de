"""The same cases on Spark, fewer."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tests.differential.cases import alike, case
from tests.differential.looking import looked_up
from tests.differential.on_spark import check_on_feed, check_on_files


def test_pushed_rows_give_the_oracles_answers(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    for number in range(seed, seed + 12):
        check_on_feed(case(Random(number)), spark, tmp_path / str(number))


def test_rows_of_files_give_the_oracles_answers(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    for number in range(seed + 50, seed + 58):
        check_on_files(case(Random(number)), spark, tmp_path / str(number))


def test_a_restart_at_every_batch_boundary_changes_nothing(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    for number in range(seed + 100, seed + 106):
        check_on_feed(case(Random(number)), spark, tmp_path / str(number), restart=True)


def test_queries_alike_give_the_oracles_answers(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    for number in range(seed + 150, seed + 154):
        check_on_feed(alike(Random(number)), spark, tmp_path / f"{number} pushed")
        check_on_feed(alike(Random(number + 4)), spark, tmp_path / f"{number} restarted", restart=True)
        check_on_files(alike(Random(number + 8)), spark, tmp_path / f"{number} from files")


def test_lookups_give_the_oracles_answers(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    for number in range(seed + 200, seed + 202):
        check_on_feed(looked_up(Random(number)), spark, tmp_path / f"{number} pushed")
        check_on_feed(looked_up(Random(number + 3)), spark, tmp_path / f"{number} restarted", restart=True)
        check_on_files(looked_up(Random(number + 6)), spark, tmp_path / f"{number} from files")
        check_on_feed(looked_up(Random(number + 9)), spark, tmp_path / f"{number} far", state="executors")
