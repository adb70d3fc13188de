"""What the planner's passes decide, and why, in a form that EXPLAIN prints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

from transom.plan.families import Family
from transom.state.state import State


@dataclass(frozen=True)
class Choice:
    """One thing that a pass decided: about which query, selection, family or store, what was chosen, and why.

    >>> str(Choice("bids", "query top", "shares selection 3", "same WHERE, joins and GROUP BY as 2 queries"))
    'query top: shares selection 3 (same WHERE, joins and GROUP BY as 2 queries)'
    """

    stream: str
    about: str
    chosen: str
    reason: str

    def __str__(self) -> str:
        return f"{self.about}: {self.chosen} ({self.reason})"


class LazyChoices(Sequence[Choice]):
    """Choices whose texts are made when somebody reads them: a batch must not pay for texts."""

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

    `choices` are the texts for people. Those of a pass that looks at a whole stream replace its earlier choices
    of that stream, `replaces`; those of other passes hold until what they are about is in `ended`. A pass
    that changes the state or the families returns new ones.
    """

    pass_name: str
    choices: Sequence[Choice] = ()
    replaces: str | None = None
    ended: Collection[str] = ()
    state: State | None = None
    families: tuple[Family, ...] | None = None


@dataclass(frozen=True)
class PlacementDecision(Decision):
    """Which groups of selections move from the driver to the executors."""

    moved: frozenset[object] = frozenset()


@dataclass
class DecisionLog:
    """The choices that hold now, by stream and pass; EXPLAIN reads them."""

    _replaced: dict[tuple[str, str], Sequence[Choice]] = field(default_factory=dict)
    _added: dict[tuple[str, str], dict[str, Choice]] = field(default_factory=dict)

    def record(self, decision: Decision) -> None:
        """Note what a pass decided."""
        if decision.replaces is not None:
            self._replaced[decision.replaces, decision.pass_name] = decision.choices
            return
        for about in decision.ended:
            for choices in self._added.values():
                choices.pop(about, None)
        for choice in decision.choices:
            self._added.setdefault((choice.stream, decision.pass_name), {})[choice.about] = choice

    def prune(self, stream: str, selections: Collection[str]) -> None:
        """Forget choices about selections of a stream that are gone."""
        for (own, _), choices in self._added.items():
            if own == stream and len(choices) > 2 * len(selections) + 64:
                for about in [one for one in choices if one.startswith("selection ")]:
                    if about not in selections:
                        del choices[about]

    def of(self, stream: str, pass_name: str) -> Iterator[Choice]:
        """The choices of a pass that hold for a stream."""
        yield from self._replaced.get((stream, pass_name), ())
        yield from self._added.get((stream, pass_name), {}).values()

    def passes(self, stream: str) -> list[str]:
        """The passes that decided something about a stream."""
        return [name for own, name in {**self._replaced, **self._added} if own == stream]

    def copy(self) -> DecisionLog:
        """A log that can change without this one."""
        return DecisionLog(dict(self._replaced), {key: dict(own) for key, own in self._added.items()})
