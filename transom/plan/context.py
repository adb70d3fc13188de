"""What the planner's passes are given: one typed context for all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_not
from typing import Any, TypeVar

import pyarrow as pa

from transom.ondemand.store_specs import StoreSet
from transom.plan.compiled_query import CompiledQuery
from transom.plan.decisions import Decision
from transom.plan.families import Family, Selection
from transom.plan.family_groups import FamilyMemory
from transom.plan.limits import Limits
from transom.plan.query_interests import InterestMemory
from transom.plan.replacement import Replacement
from transom.plan.strategy import Strategy
from transom.state.state import State
from transom.storage.shard_refs import ShardRef

Derived = TypeVar("Derived")
Known = dict[int, tuple[tuple[CompiledQuery, ...], tuple[str, ...], Selection]]


@dataclass(frozen=True)
class Membership:
    """Which queries join and leave with a batch.

    `queries` are all standing queries after that, and `store_sets` the stores that all on-demand queries need.
    Queries in `partial` also report windows that they saw only in part. `result_streams` are the streams whose
    rows are results of other queries. `replaced` are by name the queries that take the place of others; they join too.
    """

    queries: Mapping[str, CompiledQuery]
    joining: Sequence[CompiledQuery] = ()
    leaving: Collection[str] = ()
    partial: Collection[str] = ()
    store_sets: Sequence[StoreSet] = ()
    result_streams: Collection[str] = ()
    replaced: Mapping[str, Replacement] = field(default_factory=dict)

    @property
    def changes_nothing(self) -> bool:
        return not self.joining and not self.leaving


@dataclass(frozen=True)
class Observed:
    """What a batch brought to a stream: new rows of slices, all rows on the driver, new files of shards."""

    brought: Mapping[str, pa.Table]
    held: Mapping[str, pa.Table]
    shards: Sequence[ShardRef]


@dataclass
class StreamMemory:
    """Parts of earlier plans of a stream; the planner uses them again while nothing in them changes."""

    selections: Known = field(default_factory=dict)
    families: FamilyMemory = field(default_factory=FamilyMemory)
    rolled: dict[tuple[int, int | None], tuple[Family, Family]] = field(default_factory=dict)
    interests: InterestMemory = field(default_factory=InterestMemory)
    candidates: dict[str, Any] = field(default_factory=dict)  # for `reshare`, by selection
    made: dict[object, tuple[tuple[object, ...], Any]] = field(default_factory=dict)  # by what made it

    def derived(self, make: Callable[..., Derived], *sources: object) -> Derived:
        """What `make` makes of some objects, once while they are the very same objects."""
        last = self.made.get(make)
        if last is None or len(last[0]) != len(sources) or any(map(is_not, last[0], sources)):
            last = self.made[make] = sources, make(*sources)
        made: Derived = last[1]
        return made

    def forget_departed(self, count: int) -> None:
        """Clear the memory when most of it belongs to queries that left."""
        if len(self.rolled) > 4 * len(self.families.families) + 64:
            self.rolled = {}
        if len(self.families.intern) > 64 * count + 1024:
            self.selections, self.rolled = {}, {}
            self.families.clear()

    def rolled_up(self, family: Family, number: int | None) -> Family:
        """A family under the number of its roll-up: the same object as long as neither changes."""
        if family.kin == number:
            return family
        key = id(family), number  # `rolled` keeps the family alive, so that no other object gets its id
        if key not in self.rolled:
            self.rolled[key] = family, replace(family, kin=number)
        return self.rolled[key][1]

    def copy(self) -> StreamMemory:
        """An independent copy."""
        return StreamMemory(
            dict(self.selections),
            self.families.copy(),
            dict(self.rolled),
            self.interests.copy(),
            dict(self.candidates),
            dict(self.made),
        )


@dataclass(frozen=True)
class PlanContext:
    """The input of every pass. Which attributes are set says which passes have something to decide:

    - `membership`: a batch begins. Admission, placement and stores decide about queries that join or leave.
    - `reconsider`: the batch has rows of these queries. `reshare` decides whether they share slices.
    - `selections`: the rows of a batch are to be aggregated. Families and roll-ups decide.
    - `observed`: a batch was aggregated. Placement decides what moves to the executors.

    `before` is the state before the first pass, and `state` the state after the passes that have run.
    """

    before: State
    state: State
    strategy: Strategy
    membership: Membership | None = None
    reconsider: Sequence[CompiledQuery] = ()
    selections: Sequence[Selection] | None = None
    families: tuple[Family, ...] = ()
    observed: Observed | None = None
    observed_queries: Sequence[CompiledQuery] = ()
    memory: StreamMemory = field(default_factory=StreamMemory)
    decisions: tuple[Decision, ...] = ()

    @property
    def limits(self) -> Limits:
        return self.strategy.limits

    @property
    def new_selections(self) -> Iterator[int]:
        """The numbers of selections that a pass before opened."""
        return (home for home in self.state.selections if home not in self.before.selections)

    def after(self, decision: Decision) -> PlanContext:
        """The context for the passes that follow a decision."""
        return replace(
            self,
            state=self.state if decision.state is None else decision.state,
            families=self.families if decision.families is None else decision.families,
            decisions=(*self.decisions, decision),
        )


@dataclass(frozen=True)
class Pass:
    """A planner pass: a function from a context to a decision, and the name under which EXPLAIN lists its choices.

    `run` returns None if the context asks nothing of it. Checkpoints store the name with the choices.
    """

    name: str
    run: Callable[[PlanContext], Decision | None]
