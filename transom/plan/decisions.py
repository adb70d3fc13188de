"""What the planner's passes decide, and why: EXPLAIN, the API, metrics, the dashboard and checkpoints read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

from transom.plan.families import Family
from transom.plan.subject import Subject, SubjectKind
from transom.state.pass_decisions import ChoiceFields, PassDecisions
from transom.state.state import State


@dataclass(frozen=True)
class Choice:
    """A decision of a pass: what it chose, about which query, selection, family or store, and why.

    `kind` is what was chosen without names and numbers, one of a few words a pass: metrics count choices by it.

    >>> str(Choice("bids", Subject.query("top"), "shares selection 3", "same WHERE, joins and GROUP BY as 2 queries"))
    'query top: shares selection 3 (same WHERE, joins and GROUP BY as 2 queries)'
    """

    stream: str
    about: Subject
    chosen: str
    reason: str
    kind: str = "other"

    def __str__(self) -> str:
        return f"{self.about}: {self.chosen} ({self.reason})"

    @cached_property
    def stored(self) -> ChoiceFields:
        """What a checkpoint stores of it."""
        return str(self.about), self.chosen, self.reason, self.kind


@dataclass(frozen=True)
class DecisionRecord:
    """A choice that holds, with the pass that made it."""

    pass_name: str
    stream: str
    about: str
    chosen: str
    reason: str
    kind: str

    @classmethod
    def of(cls, pass_name: str, choice: Choice) -> DecisionRecord:
        return cls(pass_name, choice.stream, str(choice.about), choice.chosen, choice.reason, choice.kind)


class LazyChoices(Sequence[Choice]):
    """Choices whose texts are made when EXPLAIN reads them, so that batches don't pay for texts."""

    def __init__(self, make: Callable[[], Sequence[Choice]]):
        self._make = make

    @cached_property
    def _made(self) -> Sequence[Choice]:
        return self._make()

    @overload
    def __getitem__(self, place: int) -> Choice: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Choice]: ...
    def __getitem__(self, place: int | slice) -> Choice | Sequence[Choice]:
        return self._made[place]

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Decision:
    """What one pass decided.

    `choices` are the texts for people. A pass that plans a whole stream names it in `replaces`: its choices replace
    its earlier ones for that stream. A choice of another pass holds until its subject is in `ended`, or is not among
    those of its kind in `remaining`. Choices that follow from the state alone are `derived`: no checkpoint stores
    them, the next plan makes them again. A pass that changes the state or the families returns new ones.
    """

    choices: Sequence[Choice] = ()
    replaces: str | None = None
    ended: Collection[Subject] = ()
    remaining: Mapping[SubjectKind, Collection[Subject]] = field(default_factory=dict)
    derived: bool = False
    state: State | None = None
    families: tuple[Family, ...] | None = None


@dataclass(frozen=True)
class PlacementDecision(Decision):
    """Which groups of selections move from the driver to the executors."""

    moved: frozenset[object] = frozenset()


@dataclass
class DecisionLog:
    """The choices that hold now, by stream and pass."""

    _replaced: dict[tuple[str, str], Sequence[Choice]] = field(default_factory=dict)
    _added: dict[tuple[str, str], dict[Subject, Choice]] = field(default_factory=dict)
    _derived: set[tuple[str, str]] = field(default_factory=set)
    _stored: dict[tuple[str, str], PassDecisions] = field(default_factory=dict)  # as long as nothing changes

    def record(self, pass_name: str, decision: Decision) -> None:
        """Note what a pass decided."""
        for key, choices in self._added.items():
            ended = {about for about in decision.ended if about in choices}
            for kind, remaining in decision.remaining.items():
                ended.update(about for about in choices if about.kind is kind and about not in remaining)
            if ended:
                self._stored.pop(key, None)
            for about in ended:
                del choices[about]
        if decision.replaces is not None:
            key = decision.replaces, pass_name
            self._replaced[key] = decision.choices
            self._added.pop(key, None)  # restored from a checkpoint
            self._stored.pop(key, None)
            if decision.derived:
                self._derived.add(key)
            return
        for choice in decision.choices:
            key = choice.stream, pass_name
            self._added.setdefault(key, {})[choice.about] = choice
            self._stored.pop(key, None)

    def rename_query(self, name: str, to: str) -> None:
        """Let the choices about a query be about it under another name."""
        before, after = Subject.query(name), Subject.query(to)
        for key, choices in self._added.items():
            if before in choices:
                choices[after] = replace(choices.pop(before), about=after)
                self._stored.pop(key, None)

    def prune(self, stream: str, numbers: Set[str]) -> None:
        """Forget choices about selections of a stream that no longer exist; those with `numbers` do."""
        for key, choices in self._added.items():
            if key[0] == stream and len(choices) > 2 * len(numbers) + 64:
                self._stored.pop(key, None)
                for about in [about for about in choices if about.kind is SubjectKind.SELECTION]:
                    if numbers.isdisjoint(about.names):
                        del choices[about]

    def of(self, stream: str, pass_name: str) -> Iterator[Choice]:
        """The choices of a pass that hold for a stream."""
        yield from self._replaced.get((stream, pass_name), ())
        yield from self._added.get((stream, pass_name), {}).values()

    def passes(self, stream: str) -> list[str]:
        """The passes that decided something about a stream."""
        return [name for of_stream, name in {**self._replaced, **self._added} if of_stream == stream]

    def stored(self) -> tuple[PassDecisions, ...]:
        """What a checkpoint stores: all choices that do not follow from the state alone."""
        lasting: dict[tuple[str, str], Iterable[Choice]] = {
            key: choices for key, choices in self._replaced.items() if key not in self._derived
        }
        lasting |= {key: choices.values() for key, choices in self._added.items() if choices}
        for (stream, pass_name), choices in lasting.items():
            if (stream, pass_name) not in self._stored:
                rows = tuple(one.stored for one in choices)
                self._stored[stream, pass_name] = PassDecisions(stream, pass_name, rows)
        return tuple(self._stored[key] for key in lasting)

    def restore(self, decisions: Iterable[PassDecisions]) -> None:
        """Note the choices that a checkpoint stores."""
        for own in decisions:
            choices = self._added.setdefault((own.stream, own.pass_name), {})
            for text, *rest in own.rows:
                about = Subject.restored(text)
                choices[about] = Choice(own.stream, about, *rest)

    def copy(self) -> DecisionLog:
        """An independent copy."""
        added = {key: dict(choices) for key, choices in self._added.items()}
        return DecisionLog(dict(self._replaced), added, set(self._derived), dict(self._stored))
