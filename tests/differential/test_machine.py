"""Batches, queries that come and go, punctuations, ends and restarts in any order, against the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.case_counts import case_count
from tests.differential.cases import SECOND, BatchCase, Case
from tests.differential.engine import TIME, PureEngine, Row, bound
from tests.differential.oracle_comparison import same_as_oracle, same_results
from tests.differential.test_pure import STRATEGIES
from transom.elements import Punctuation
from transom.sql import Query

# Few of each, so that queries that meet have something to share.
WINDOWS = ["[RANGE '10 seconds' SLIDE '5 seconds']", "[RANGE '12 seconds' SLIDE '4 seconds']",
           "[RANGE '3 seconds' SLIDE '5 seconds']", "[RANGE '10 seconds' SLIDE '10 seconds']",
           "[ROWS 4 SLIDE 3]"]  # fmt: skip
WHERES = ["", "qty > 2", "qty BETWEEN 1 AND 3", "qty > 2 AND kind LIKE 'a%'"]
KEYS = ["", "site"]
ITEMS = ["sum(qty)", "min(price)", "avg(qty)", "sum(price)", "max(kind)"]
PATTERNS: list[tuple[tuple[str, Any], ...]] = [
    (),
    (("site", 1),),
    (("kind", "a"),),
    (("site", 2), ("kind", "b")),
]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "step": st.sampled_from([0, 1, 2, 3, 6, -2, -9]),  # seconds from one row to the next
            "site": st.sampled_from([1, 2, None]),
            "kind": st.sampled_from(["a", "b", None]),
            "price": st.sampled_from([1.5, -3.0, 1e300, float("nan"), None]),
            "qty": st.sampled_from([0, 1, 2, 3, 4, 5, None]),
        }
    ),
    min_size=1,
    max_size=8,
)


class Machine(RuleBasedStateMachine):
    """An engine under way, and the case that it makes."""

    @initialize(
        slack=st.sampled_from([None, 0, 8 * SECOND]), options=st.sampled_from(list(STRATEGIES.values()))
    )
    def begin(self, slack: int | None, options: dict[str, Any]) -> None:
        self.case, self.options = Case({}, set(), [], slack, None), options
        self.engine = PureEngine(self.case, {}, **options)
        self.queries: dict[str, Query] = {}
        self.alive: dict[str, str] = {}  # keys of queries by name
        self.joining: list[str] = []
        self.leaving: list[str] = []
        self.now = 0

    @rule(
        name=st.sampled_from("abcdef"),
        window=st.sampled_from(WINDOWS),
        where=st.sampled_from(WHERES),
        by=st.sampled_from(KEYS),
        items=st.lists(st.sampled_from(ITEMS), min_size=1, max_size=2, unique=True),
        partial=st.integers(0, 5),
    )
    def register(self, name: str, window: str, where: str, by: str, items: list[str], partial: int) -> None:
        """A name that is taken is given up first."""
        if name in self.alive:
            if self.alive[name] in self.joining:
                return
            self.leaving.append(self.alive[name])
        key = f"{name}.{len(self.case.queries)}"
        selected = ", ".join([*([by] if by else []), *(f"{item} AS x{i}" for i, item in enumerate(items))])
        text = f"SELECT {selected} FROM s {window}"
        text += f" WHERE {where}" if where else ""
        self.case.queries[key] = text + (f" GROUP BY {by}" if by else "")
        self.case.called[key] = name
        self.queries |= bound({key: self.case.queries[key]})
        self.engine.learn(key, self.queries[key])
        if not partial:
            self.case.partial.add(key)
        self.alive[name] = key
        self.joining.append(key)

    @precondition(lambda self: set(self.alive.values()) - set(self.joining))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        there = sorted(name for name, key in self.alive.items() if key not in self.joining)
        self.leaving.append(self.alive.pop(data.draw(st.sampled_from(there))))

    @rule(rows=ROWS, splits=st.integers(1, 3))
    def push(self, rows: list[dict[str, Any]], splits: int) -> None:
        made: list[Row] = []
        for row in rows:
            self.now += row["step"] * SECOND
            times = {"ts": self.now, "seq": self.now // SECOND, "amount": None}
            made.append(times | {name: value for name, value in row.items() if name != "step"})
        self._batch(BatchCase(made, splits=splits))

    @rule(
        ahead=st.integers(-10, 10),
        since=st.sampled_from([None, 5, 20]),
        where=st.sampled_from(PATTERNS),
    )
    def punctuate(self, ahead: int, since: int | None, where: tuple[tuple[str, Any], ...]) -> None:
        until = self.now + ahead * SECOND
        said = Punctuation(TIME, until, None if since is None else until - since * SECOND, where)
        self._batch(BatchCase([], punctuations=[said]))

    @rule()
    def end(self) -> None:
        self._batch(BatchCase([], ended=True))

    @rule()
    def restart(self) -> None:
        self.engine.restart()

    def _batch(self, batch: BatchCase) -> None:
        batch.joining, batch.leaving = self.joining, self.leaving
        self.joining, self.leaving = [], []
        self.case.batches.append(batch)
        self.engine.batch(batch)

    @invariant()
    def every_row_is_accounted_for(self) -> None:
        if not hasattr(self, "case"):
            return
        totals = self.engine.state.stream("s").totals
        assert totals.rows == sum(len(batch.rows) for batch in self.case.batches)
        assert totals.rows == totals.counted + totals.unwanted + totals.late + totals.rejected
        assert totals.late == len(self.engine.late)

    def teardown(self) -> None:
        if not hasattr(self, "case"):
            return
        self._batch(BatchCase([], ended=True))
        self._compare(self.case, self.engine)
        self._compare_without_those_that_left()

    def _compare(self, case: Case, engine: PureEngine) -> None:
        queries = {key: self.queries[key] for batch in case.batches for key in batch.joining}
        same_as_oracle(case, queries, engine.results, engine.late, engine.state.stream("s").totals)

    def _compare_without_those_that_left(self) -> None:
        """The results of queries that stay are the same in a run without the ones that came and went."""
        stayed = set(self.alive.values())
        batches = [
            replace(batch, joining=[key for key in batch.joining if key in stayed], leaving=[])
            for batch in self.case.batches
        ]
        quiet = replace(self.case, batches=batches)
        engine = PureEngine(quiet, {key: self.queries[key] for key in stayed}, **self.options)
        seen = 0
        for batch in batches:
            for key in batch.joining:
                if seen:
                    stayed.discard(key)  # how much it was told of the time before depends on others
            engine.batch(batch)
            seen += len(batch.rows)
        self._compare(quiet, engine)
        for key in stayed:
            alone = [{**row, "batch": row["batch"] - 1} for row in engine.results[key]]
            assert not same_results(self.queries[key], self.engine.results[key], alone)


Machine.TestCase.settings = settings(max_examples=case_count(60), stateful_step_count=40)
TestJoiningAndLeavingNeverDisturbsAnotherQuery = Machine.TestCase
