"""What a choice of the planner is about: a query, selections, families, stores of on-demand queries, or a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class SubjectKind(Enum):
    """The kinds of subjects, with the words before one name and before several."""

    QUERY = "query", "queries"
    SELECTION = "selection", "selections"
    FAMILY = "family", "families"
    STORES = "stores of", "stores of"
    SUMMARY = "summary", "summaries"


@dataclass(frozen=True)
class Subject:
    """What a choice is about, by kind and names.

    >>> print(Subject.query("top"), Subject.selections([3]), Subject.families([1, 4]), sep="; ")
    query top; selection 3; families 1, 4
    """

    kind: SubjectKind
    names: tuple[str, ...]

    @classmethod
    def query(cls, name: str) -> Subject:
        return cls(SubjectKind.QUERY, (name,))

    @classmethod
    def selections(cls, numbers: Iterable[int]) -> Subject:
        return cls(SubjectKind.SELECTION, tuple(map(str, numbers)))

    @classmethod
    def families(cls, numbers: Iterable[int]) -> Subject:
        return cls(SubjectKind.FAMILY, tuple(map(str, numbers)))

    @classmethod
    def stores(cls, selection: str) -> Subject:
        """The stores over the tuples and groups of a selection, given its text."""
        return cls(SubjectKind.STORES, (selection,))

    @classmethod
    def summary(cls, name: str) -> Subject:
        return cls(SubjectKind.SUMMARY, (name,))

    @classmethod
    def restored(cls, text: str) -> Subject:
        """The subject whose text a checkpoint stores; only numbers can be several."""
        for kind in SubjectKind:
            one, several = kind.value
            if text.startswith(f"{one} "):
                return cls(kind, (text.removeprefix(f"{one} "),))
            if text.startswith(f"{several} "):
                return cls(kind, tuple(text.removeprefix(f"{several} ").split(", ")))
        raise ValueError(f"not the text of a subject: {text!r}")

    def __str__(self) -> str:
        one, several = self.kind.value
        return f"{one if len(self.names) == 1 else several} {', '.join(self.names)}"

    def __iter__(self) -> Iterator[Subject]:
        """The same for each name."""
        return (Subject(self.kind, (name,)) for name in self.names)
