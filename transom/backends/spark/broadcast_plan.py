"""Plans on their way to tasks: what stays the same from batch to batch is sent and unpacked once."""

from __future__ import annotations

import gc
import os
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

from pyspark.broadcast import Broadcast
from pyspark.sql import SparkSession

from transom.backends.base import ShippedPlan
from transom.kernel.aggregate import BatchPlan, Interest
from transom.kernel.query_counts import QueryIndex

LARGE = 256  # selections from which on a plan is worth a broadcast
_KEPT = 4
_unpacked: OrderedDict[str, Any] = OrderedDict()  # of this process: Spark uses its workers again
_frozen: set[int] = set()  # the workers whose modules were frozen, by process id


class PackedInterests(Sequence[Interest]):
    """Interests that a task unpacks when it reads them: most tasks have no late rows, and do not need them.

    Ten thousand of them are a hundred thousand objects, and Spark has the collector search all objects after each task.
    """

    def __init__(self, interests: Sequence[Interest]):
        self._packed, self._count = pickle.dumps(tuple(interests), 5), len(interests)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Interest: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Interest]: ...
    def __getitem__(self, place: int | slice) -> Interest | Sequence[Interest]:
        return self._unpacked[place]

    def __iter__(self) -> Iterator[Interest]:
        return iter(self._unpacked)

    @cached_property
    def _unpacked(self) -> tuple[Interest, ...]:
        unpacked: tuple[Interest, ...] = pickle.loads(self._packed)
        return unpacked


class Parcel:
    """The families, interests and queries of a plan, packed; a worker process unpacks them when it first sees them."""

    def __init__(self, spark: SparkSession, content: tuple[Any, ...]):
        self.key = uuid.uuid4().hex
        self.packed: Broadcast[bytes] = spark.sparkContext.broadcast(pickle.dumps(content, 5))

    def content(self) -> tuple[Any, ...]:
        if self.key not in _unpacked:
            _unpacked[self.key] = pickle.loads(self.packed.value)
            while len(_unpacked) > _KEPT:
                _unpacked.popitem(last=False)
        return _unpacked[self.key]


class BroadcastPlan(ShippedPlan):
    """A batch plan as a task receives it."""

    def __init__(self, plan: BatchPlan, parcel: Parcel | None):
        self._plan, self._parcel = plan, parcel

    def plan(self) -> BatchPlan:
        freeze_modules()
        if self._parcel is None:
            return self._plan
        families, interests, index = self._parcel.content()
        return replace(self._plan, families=families, interests=interests, index=index)


def freeze_modules() -> None:
    """Exempt a worker's modules from garbage collection, because Spark collects after every task."""
    if os.getpid() not in _frozen:
        gc.freeze()
        _frozen.add(os.getpid())


class PlanBroadcaster:
    """Packs plans; families, interests and queries that were sent for the batch before are not sent again."""

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self._sent: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], Parcel]] = OrderedDict()

    def ship(self, plan: BatchPlan) -> BroadcastPlan:
        content = plan.families, plan.interests, plan.index
        if sum(len(family) for family in plan.families) + len(plan.interests) < LARGE:
            return BroadcastPlan(plan, None)
        key = id(plan.families), id(plan.interests), id(plan.index)
        if key not in self._sent:
            packed = plan.families, PackedInterests(plan.interests), plan.index
            self._sent[key] = content, Parcel(self.spark, packed)  # held, so that its id stays its own
            if len(self._sent) > _KEPT:
                _, (_, old) = self._sent.popitem(last=False)
                old.packed.destroy()
        self._sent.move_to_end(key)
        return BroadcastPlan(replace(plan, families=(), interests=(), index=QueryIndex()), self._sent[key][1])
