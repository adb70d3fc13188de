"""Families: which selections evaluate their predicates together, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transom.plan.context import PlanContext
from transom.plan.decisions import Choice, Decision, LazyChoices
from transom.plan.families import Family, family_kind, family_numbers
from transom.plan.family_groups import families_of
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Strategy
from transom.plan.subject import Subject
from transom.state.state import SelectionState


def families(context: PlanContext) -> Decision | None:
    """Put the selections of a stream into families; a family in which nothing changed is used again."""
    if context.selections is None:
        return None
    strategy, memory, state = context.strategy, context.memory, context.state
    apart = {
        one.id for one in context.selections if (state.selections[one.id].alone_until or 0) > state.batch_id
    }
    on_executors = {one.id for one in context.selections if state.selections[one.id].on_executors}
    found = families_of(context.selections, state.young_after, strategy, memory.families, apart, on_executors)
    stream = context.selections[0].clock.stream if context.selections else None
    choices = LazyChoices(lambda: _choices(stream or "", found, strategy, apart, state.young_after))
    return Decision(choices, replaces=stream, derived=True, families=found)


def kept_apart(selection: SelectionState, batch_id: int, limits: Limits) -> SelectionState:
    """A selection that joins no signature family for a while, because a batch showed that one does not pay."""
    return replace(selection, alone_until=batch_id + limits.batches_apart)


def _choices(
    stream: str, families: Sequence[Family], strategy: Strategy, apart: set[int], young_after: int
) -> list[Choice]:
    numbered = [
        (number, _with_age(_choice(stream, number, family, strategy, apart), family, young_after))
        for number, family in zip(family_numbers(families), families, strict=True)
    ]
    return [choice for _, choice in sorted(numbered, key=lambda one: one[0])]


def _with_age(choice: Choice, family: Family, young_after: int) -> Choice:
    """The choice with the reason why a family of young selections is planned apart, if it is one."""
    if not young_after or int(family.ids.min()) <= young_after:
        return choice
    reason = f"{choice.reason}; planned apart, because queries opened it lately"
    return replace(choice, reason=reason)


def _choice(stream: str, number: int, family: Family, strategy: Strategy, apart: set[int]) -> Choice:
    kind, size = family_kind(family), len(family)
    selections = f"{size:,} selection{'' if size == 1 else 's'}"
    if kind == "range":
        assert family.axis is not None
        chosen = f"one binary search of {family.axis.scalar.sql} for {selections}"
        reason = f"they differ only in what they ask of it: {family.axis.size:,} fragments"
    elif kind == "grid":
        assert family.grid is not None
        scalars = " and ".join(axis.scalar.sql for axis in family.grid.axes)
        boxes = len(family.grid.owners)
        chosen = f"boxes of {scalars} for {selections}"
        reason = (
            f"they differ in what they ask of these {len(family.grid.axes)} scalars: {boxes:,} boxes; each task "
            "adds up cells by block of selections, or tuples by selection where these are fewer"
        )
    elif kind == "gaps":
        chosen = f"tuples are added once for {selections} of sessions"
        reason = "they differ only in their gaps: shorter sessions nest in longer ones"
    elif kind == "signature":
        chosen = f"signatures of {len(family.conjuncts):,} conjuncts for {selections}"
        reason = _why_signed(strategy.fragments, strategy.limits)
    else:
        chosen, reason = f"selection {int(family.ids[0])} alone", _why_alone(family, strategy, apart)
    return Choice(stream, Subject.families([number]), chosen, reason, f"{kind}_family")


def _why_signed(fragments: FragmentSharing, limits: Limits) -> str:
    if fragments is FragmentSharing.JOINT:
        return "the setting fragments is joint"
    return f"no two differ in one scalar only; at most {limits.signature_members:,} selections a family"


def _why_alone(family: Family, strategy: Strategy, apart: set[int]) -> str:
    if strategy.fragments is FragmentSharing.UNSHARED:
        return "the setting fragments is unshared"
    if not family.merged:
        return "it keeps every tuple"
    if int(family.ids[0]) in apart:
        batches = strategy.limits.batches_apart
        return (
            f"a signature family had too few tuples for each fragment; tried again after {batches:,} batches"
        )
    return "it has no predicate" if not family.rest else "no other selection has a predicate to share"
