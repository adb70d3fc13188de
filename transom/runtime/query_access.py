"""What an engine and its query handles do with registered queries: read, prod, look up, tune and drop them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from transom.elements import Drop, Resume, Tune
from transom.errors import SettingError, StateError, near_miss
from transom.ingest.streams import Stream
from transom.runtime.delivery import Delivery
from transom.runtime.journal import Journal
from transom.runtime.lookups import Lookups
from transom.runtime.loop import BatchLoop
from transom.runtime.prods import ProdAnswers, prod_of
from transom.sql.query import Query


@dataclass
class QueryAccess:
    """The parts of an engine that work on registered queries."""

    loop: BatchLoop
    delivery: Delivery
    prods: ProdAnswers
    lookups: Lookups
    wake: Callable[[], None]  # look for batches now
    journals: list[Journal] = field(default_factory=list)

    def text(self, name: str) -> str:
        """The text of a query that is registered, or waits to join."""
        texts = dict(self.loop.directory.texts)
        if name not in texts:
            raise StateError(f"there is no query named {name}{near_miss(name, texts)}")
        return texts[name]

    def registered(self, name: str, text: str) -> bool:
        """Whether a query of this text has joined, and the name is not another query's by now."""
        registry = self.loop.directory.registry
        return name in registry and registry[name].text == text

    def suspended(self, name: str) -> str | None:
        """Why a query is suspended, if it is."""
        registry = self.loop.directory.registry
        return registry[name].suspended if name in registry else None

    def stream(self, name: str) -> Stream:
        """A declared stream."""
        streams = self.loop.declared.streams
        if name not in streams:
            raise SettingError(f"there is no stream named {name}{near_miss(name, streams)}")
        return streams[name]

    # --- control ---

    def drop(self, name: str) -> None:
        """Drop a query with the next batch."""
        directory = self.loop.directory
        with directory.lock:
            if name not in directory.texts:
                raise StateError(f"there is no query named {name}")
            if readers := directory.readers(name):
                raise StateError(f"{name} is read by {', '.join(readers[:3])}: drop that first")
            directory.push([Drop(name)])
        self.delivery.forget(name)
        self.wake()

    def resume(self, name: str) -> None:
        """Let a suspended query take part in batches again, from the next one on."""
        if self.suspended(name) is None:
            raise StateError(f"the query {name} is not suspended")
        self.loop.directory.push([Resume(name)])
        self.wake()

    def tune(self, name: str, point: float | None) -> None:
        """Report windows of a query at a point of the slide, from the next batch on."""
        self.loop.directory.push([Tune(name, point)])
        self.wake()

    # --- early results ---

    def prod(
        self,
        streams: Iterable[Stream],
        until: Any = None,
        at: Any = None,
        where: Mapping[str, Any] | None = None,
        queries: tuple[str, ...] | None = None,
        on: str | None = None,
    ) -> dict[str, pa.Table]:
        """Early results of open windows from the last committed batch, by query.

        A time or a pattern may fit only some of the streams: it is an error if it fits none.
        """
        prods, problem = [], None
        for stream in streams:
            if stream.prods is not None:
                continue
            try:
                prods.append(prod_of(stream, until, at, where, on, queries))
            except SettingError as error:
                problem = error
        if problem is not None and not prods:
            raise problem
        results, batch_id = self.prods.answer(prods)
        self.delivery.call_subscribers(results)
        for journal in self.journals:
            journal.add_prod(results, batch_id)
        return dict(results)

    def bound(self, name: str, text: str) -> tuple[Query, int]:
        """A query that has joined, with the batch that it joined with."""
        directory = self.loop.directory
        directory.bind()
        return directory.registry.query(name), directory.registry[name].since
