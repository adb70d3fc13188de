"""Outer joins of streams WITH PREFERENCE against the oracle, which tries every pair of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import transom
from tests.case_counts import case_seeds
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.results.pure_batches import SCALARS
from transom.oracle.preference_joins import OraclePreferenceJoin

pytestmark = pytest.mark.any_worker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
SCHEMA = "item int, id int, v int, ts timestamp"
TYPES = {"item": pa.int32(), "id": pa.int32(), "v": pa.int32(), "t": pa.int64()}
REACH = {1: 9, 2: 3}  # the seconds that the summaries of the stores keep
SUMMARIES = {
    1: "WITH GRANULARITY '3 seconds' AND COLLAPSE(2, 2) AND BUCKETS 4",
    2: "WITH GRANULARITY '3 seconds' AND COLLAPSE(2, 1) AND BUCKETS 4",
}
PRESERVED = {"LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}
OWN = [None, None, "{}.v > 3", "{}.v IS NULL", "{}.item <> 1"]
WHERE = [
    None, None, "a.v > 2", "b.v > 2", "b.id IS NULL", "a.id IS NULL", "a.v < b.v",
    "coalesce(a.v, 0) + coalesce(b.v, 0) > 4", "a.v > 2 AND b.v IS NULL", "a.v > 6 OR b.id IS NULL",
]  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """An outer join, and what it runs on."""

    form: str
    on: tuple[str | None, str | None, str | None]  # on each side, and on the pair
    where: str | None
    window: int
    budget: str
    order: str
    fade: str
    is_self: bool

    @property
    def stores(self) -> tuple[int, int]:
        return (1, 1) if self.is_self else (1, 2)

    @property
    def sql(self) -> str:
        on = " AND ".join(["a.item = b.item", *(text for text in self.on if text is not None)])
        where = "" if self.where is None else f"WHERE {self.where}"
        one, other = self.stores
        return (
            f"SELECT a.id AS one, b.id AS other, b.v AS v FROM store{one} a {self.form} JOIN store{other} b ON {on}"
            f" {where} WITH PREFERENCE {self.order} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)"
            f" {self.fade} WINDOW '{self.window} seconds' {self.budget}"
        )

    @property
    def oracle(self) -> OraclePreferenceJoin:
        one, other = self.stores
        return OraclePreferenceJoin(
            (f"store{one}", f"store{other}"),
            (TYPES, TYPES),
            ("item", "item"),
            "t",
            self.window * SECOND,
            (REACH[one] * SECOND, REACH[other] * SECOND),
            PRESERVED[self.form],
            SCALARS,
            (over_pairs(self.on[0]), over_pairs(self.on[1]), over_pairs(self.on[2])),
            over_pairs(self.where),
        )


def over_pairs(text: str | None) -> str | None:
    """A condition over the columns of a pair."""
    if text is None:
        return None
    for side, alias in enumerate("ab"):
        for name in TYPES:
            text = text.replace(f"{alias}.{name} ", f"`{side}.{name}` ").replace(
                f"{alias}.{name},", f"`{side}.{name}`,"
            )
            if text.endswith(f"{alias}.{name}"):
                text = text.removesuffix(f"{alias}.{name}") + f"`{side}.{name}`"
    return text


def draw(dice: Random) -> Drawn:
    on = [None if text is None else text.format(alias) for alias in "ab" for text in [dice.choice(OWN)]]
    pair = dice.choice([None, None, "a.v < b.v", "a.v + b.v <> 7"])
    budget = dice.choice(["", "", "BUDGET 3 PROBES", "BUDGET 40 PROBES"]) if pair is None else ""
    return Drawn(
        dice.choice([*PRESERVED]),
        (on[0], on[1], pair),
        dice.choice(WHERE),
        dice.choice([1, 2, 3]),
        budget,
        dice.choice(["desc", "asc", "weighted"]),
        dice.choice(["", "", "FADE FACTOR 0.8"]),
        dice.random() < 0.2,
    )


def opened(
    make_engine: EngineFactory, place: Path, state: str = "auto"
) -> tuple[transom.Engine, dict[int, Any]]:
    engine = make_engine(str(place / "checkpoint"), state=state)
    feeds = {number: engine.feed(f"store{number}", SCHEMA, time="ts") for number in (1, 2)}
    for number, options in SUMMARIES.items():
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {options}")
    return engine, feeds


def draw_rows(dice: Random, now: int, first: int) -> list[dict[str, Any]]:
    """Rows out of order; some are late, some have no item or no value, and some are alike but for their id."""
    rows = []
    for number in range(dice.choice([1, 3, 8])):
        behind = dice.choice([0, 0, 1, 2, 4, 7, 12])
        rows.append(
            {
                "item": dice.choice([1, 1, 2, 3, 4, None]),
                "id": first + number,
                "v": dice.choice([None, *range(9)]),
                "t": (now + dice.randrange(3) - behind) * SECOND + dice.choice([0, 1, 500_000]),
            }
        )
    return rows


def pushed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["item"], row["id"], row["v"], NOON + timedelta(microseconds=row["t"])) for row in rows]


def results(query: Any) -> Counter[Any]:
    return Counter((row["one"], row["other"], row["v"]) for row in query.results().to_pylist())


def check_case(
    seed: int, make_engine: EngineFactory, place: Path, state: str = "auto", steps: int = 16
) -> Drawn:
    dice = Random(seed)
    drawn = draw(dice)
    oracle, expected = drawn.oracle, Counter[Any]()
    engine, feeds = opened(make_engine, place, state)
    query, now, first = None, 0, 0
    end_at, restart_at = dice.choice([None, steps // 2]), dice.randrange(steps)
    note = f"seed {seed}: {drawn.sql}"
    shared = "SELECT a.id FROM store1 a JOIN store2 b ON a.item = b.item WITH PREFERENCE desc"
    joins_at = 0
    if dice.random() < 0.4 and not drawn.is_self:  # another join keeps tuples for longer, but decides nothing
        engine.register(f"{shared} SUMMARY.Estimate.Count(a.item) WINDOW '3 seconds'", name="longer")
        joins_at = dice.choice([0, 3, 5])

    def check() -> None:
        found = results(query)
        if not drawn.budget:
            assert found == expected, note
            return
        assert not found - expected, note
        lone = Counter({row: n for row, n in expected.items() if None in row[:2]})
        assert Counter({row: n for row, n in found.items() if None in row[:2]}) == lone, note

    for number in range(steps):
        if number == joins_at:
            query = engine.register(drawn.sql, name="q")
            oracle.join()
            expected.clear()
        store = 1 if drawn.is_self else dice.choice([1, 2])
        rows = draw_rows(dice, now, first)
        first += len(rows)
        feeds[store].push(pushed(rows))
        engine.step()
        expected.update(shown(oracle.batch(f"store{store}", rows)))
        if query is None:
            now += 1
            continue
        check()
        if end_at is None or number - end_at not in (
            0,
            1,
        ):  # rows after an end could be partners of rows before it
            now += dice.choice([0, 1, 1, 2, 3])
        if number == end_at or number == steps - 1:
            for name in ("store1", "store2"):
                engine.flush(name)
            while engine.step():
                pass
            expected.update(shown(oracle.end()))
            check()
        if number == restart_at:
            engine.stop()
            engine, feeds = opened(make_engine, place, state)
            query = engine.query("q")
    engine.stop()
    return drawn


def shown(pairs: list[dict[str, Any]]) -> list[tuple[Any, Any, Any]]:
    return [(pair["0.id"], pair["1.id"], pair["1.v"]) for pair in pairs]


@pytest.mark.parametrize("case", case_seeds(0, 120))
def test_an_outer_join_returns_what_the_oracle_returns(
    case: int, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    check_case(seed + case, make_engine, tmp_path)


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_an_outer_join_is_the_same_with_state_on_executors_and_on_spark(
    state: str, make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for case in range(2):
        place = tmp_path / str(case)
        place.mkdir()
        check_case(seed + 1000 + case, make_engine, place, state, steps=6)
