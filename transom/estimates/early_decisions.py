"""Early decisions of a query WITH CONFIDENCE: which windows and groups were announced, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np

from transom.columns.array_bytes import pack, unpack
from transom.columns.arrays import Floats, Ints, Mask
from transom.columns.hashes import mix_bits
from transom.estimates.decision_history import DecisionHistory
from transom.estimates.decision_score import DecisionReport, DecisionTotals
from transom.estimates.pending_values import final_positions
from transom.estimates.stored_form import decode_arrays, encode_arrays

SAMPLED_GROUPS = 64  # whose looks are kept, to measure the errors of margins
MOST_LOOKS = 65_536
MOST_TRACKS = 1 << 21

# The margins of some closed windows, given their places and the spreads of earlier looks.
FinalMargin = Callable[[Ints, Floats], Floats]


class DecisionOutcome(IntEnum):
    """What a final says about the early decision."""

    NOTHING = 0  # not announced, and HAVING is false
    CONFIRMED = 1
    WITHDRAWN = 2
    MISSED = 3  # HAVING is true, and was not announced


@dataclass(frozen=True)
class Tracks:
    """The windows and groups that are announced, or have had a positive margin; arrays of equal length."""

    window: Ints
    group: Ints
    margin: Floats  # the greatest so far
    is_announced: Mask
    is_certain: Mask  # whether HAVING can't become false
    made: Ints  # when it was announced, by the engine's clock
    slides_left: Floats  # when it was announced

    @classmethod
    def empty(cls) -> Tracks:
        whole, none, no = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
        return cls(whole, whole, none, no, no, whole, none)

    def __len__(self) -> int:
        return len(self.window)

    def take(self, at: Any) -> Tracks:
        """Some of the tracks."""
        return Tracks(*(getattr(self, field.name)[at] for field in fields(self)))

    def places(self, window: Ints, group: Ints) -> Ints:
        """The place of each window and group, -1 if there is none."""
        return _places((window, group), (self.window, self.group))


@dataclass(frozen=True)
class Looks:
    """Margins of sampled groups at earlier looks, the greatest of each mark; arrays of equal length."""

    window: Ints
    group: Ints
    mark: Ints
    margin: Floats
    spread: Floats  # looks x estimated leaves

    @classmethod
    def empty(cls, leaves: int) -> Looks:
        whole = np.empty(0, np.int64)
        return cls(whole, whole, whole, np.empty(0), np.empty((0, leaves)))

    def take(self, at: Any) -> Looks:
        """Some of the looks."""
        return Looks(*(getattr(self, field.name)[at] for field in fields(self)))

    def and_also(self, more: Looks) -> Looks:
        """These looks and more of them; of each window, group and mark, the one with the greatest margin."""
        both = Looks(*(np.concatenate([getattr(one, f.name) for one in (self, more)]) for f in fields(self)))
        order = np.lexsort((-both.margin, both.mark, both.group, both.window))
        both = both.take(order)
        keys = np.stack([both.window, both.group, both.mark])
        first = np.ones(len(order), np.bool_)
        first[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        return both.take(np.flatnonzero(first)[-MOST_LOOKS:])


@dataclass(frozen=True)
class LookRows:
    """Open windows at one look; arrays of equal length."""

    window: Ints
    group: Ints
    slides_left: Floats
    mark: Ints
    margin: Floats
    is_certain: Mask
    spread: Floats  # rows x estimated leaves


@dataclass(frozen=True)
class ClosedRows:
    """Closed windows, whether HAVING is true of them or not; arrays of equal length."""

    window: Ints
    group: Ints
    held: Mask


@dataclass(frozen=True)
class EarlyDecisions:
    """The decisions about open windows, and what was learned of those about closed ones; immutable."""

    tracks: Tracks
    looks: Looks
    history: DecisionHistory
    totals: DecisionTotals

    @classmethod
    def empty(cls, confidence: float, leaves: int) -> EarlyDecisions:
        return cls(Tracks.empty(), Looks.empty(leaves), DecisionHistory.empty(confidence), DecisionTotals())

    def report(self) -> DecisionReport:
        """The achieved rates."""
        open_ones = int(self.tracks.is_announced.sum())
        return self.totals.report(1 - self.history.promised, open_ones)

    def with_looks(self, rows: LookRows, made: int) -> tuple[EarlyDecisions, Mask]:
        """The decisions after a look, and which rows are announced now."""
        tracks = self.tracks
        at = tracks.places(rows.window, rows.group)
        is_known = at >= 0
        was_announced, was_certain = np.zeros(len(at), np.bool_), np.zeros(len(at), np.bool_)
        was_announced[is_known] = tracks.is_announced[at[is_known]]
        was_certain[is_known] = tracks.is_certain[at[is_known]]
        before = np.full(len(at), -np.inf)
        before[is_known] = tracks.margin[at[is_known]]
        # What is certain needs no margin, and would only make margins look better than they are.
        counts = ~(rows.is_certain | was_certain) & np.isfinite(rows.margin)
        margin = np.where(counts, np.maximum(before, rows.margin), before)
        announced = ~was_announced & (rows.is_certain | (counts & (rows.margin >= self.history.limit)))
        certain = rows.is_certain | was_certain
        is_tracked = is_known | announced | (margin > 0)
        kept = np.ones(len(tracks), np.bool_)
        kept[at[is_known]] = False
        made_before, left_before = np.zeros(len(at), np.int64), np.zeros(len(at))
        made_before[is_known], left_before[is_known] = (
            tracks.made[at[is_known]],
            tracks.slides_left[at[is_known]],
        )
        fresh = Tracks(
            rows.window,
            rows.group,
            margin,
            was_announced | announced,
            certain & (was_certain | ~was_announced),
            np.where(announced, made, made_before),
            np.where(announced, rows.slides_left, left_before),
        ).take(is_tracked)
        parts = tracks.take(kept), fresh
        tracks = Tracks(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Tracks)))
        if len(tracks) > MOST_TRACKS:  # those of the oldest windows are evicted
            tracks = tracks.take(np.sort(np.argsort(tracks.window, kind="stable")[-MOST_TRACKS:]))
        return replace(self, tracks=tracks, looks=self._with_sampled_looks(rows, counts)), announced

    def _with_sampled_looks(self, rows: LookRows, counts: Mask) -> Looks:
        if not counts.any():
            return self.looks
        sampled = counts & _sampled(rows.group)
        chosen = np.flatnonzero(sampled)
        looks = Looks(rows.window, rows.group, rows.mark, rows.margin, rows.spread)
        return self.looks.and_also(looks.take(chosen))

    def with_finals(
        self, rows: ClosedRows, final_margin: FinalMargin, made: int
    ) -> tuple[EarlyDecisions, Ints]:
        """The decisions after some windows closed, and the outcome of each window and group.

        `final_margin` are the margins of finals in the units of earlier looks.
        """
        at = self.tracks.places(rows.window, rows.group)
        is_known = np.flatnonzero(at >= 0)
        own = self.tracks.take(at[is_known])
        announced = np.zeros(len(at), np.bool_)
        announced[is_known] = own.is_announced
        outcome = np.select(
            [announced & rows.held, announced, rows.held],
            [DecisionOutcome.CONFIRMED, DecisionOutcome.WITHDRAWN, DecisionOutcome.MISSED],
            DecisionOutcome.NOTHING,
        ).astype(np.int64)
        left = np.ones(len(self.tracks), np.bool_)
        left[at[is_known]] = False
        order = _by_chance(own.group, own.window)
        candidates = order[own.margin[order] > 0]
        history = self.history.with_candidates(
            own.margin[candidates], rows.held[is_known[candidates]], own.window[candidates]
        )
        judged = own.is_announced & ~own.is_certain
        held = rows.held[is_known]
        history = history.with_outcomes(int((judged & held).sum()), int((judged & ~held).sum()))
        looks, history = self._with_errors(history, rows, final_margin)
        totals = self._with_outcomes(rows, outcome, at, made)
        return EarlyDecisions(self.tracks.take(left), looks, history, totals), outcome

    def _with_outcomes(self, rows: ClosedRows, outcome: Ints, at: Ints, made: int) -> DecisionTotals:
        some = np.flatnonzero(outcome != DecisionOutcome.NOTHING)
        some = some[np.lexsort((rows.group[some], rows.window[some]))]
        codes, place = outcome[some], at[some]
        certain, slides, seconds = np.zeros(len(some)), np.zeros(len(some)), np.zeros(len(some))
        known = place >= 0
        own = self.tracks.take(place[known])
        certain[known] = own.is_certain & own.is_announced
        slides[known], seconds[known] = own.slides_left, (made - own.made) / 1e6
        confirmed, withdrawn, missed = (
            codes == kind
            for kind in (DecisionOutcome.CONFIRMED, DecisionOutcome.WITHDRAWN, DecisionOutcome.MISSED)
        )
        return self.totals.with_outcomes(confirmed, withdrawn, missed, certain, slides, seconds)

    def _with_errors(
        self, history: DecisionHistory, rows: ClosedRows, final_margin: FinalMargin
    ) -> tuple[Looks, DecisionHistory]:
        """The looks at windows that stay open, and the history with the errors of those that closed."""
        place = _places((self.looks.window, self.looks.group), (rows.window, rows.group))
        hit = np.flatnonzero(place >= 0)
        if not len(hit):
            return self.looks, history
        looks, place_of_final = self.looks.take(hit), place[hit]
        with np.errstate(invalid="ignore"):
            error = looks.margin - final_margin(place_of_final, looks.spread)
        error = np.where(np.isnan(error), -np.inf, error)
        finals, run = np.unique(place_of_final, return_inverse=True)
        worst = np.full(len(finals), -np.inf)
        np.maximum.at(worst, run, error)
        order = _by_chance(rows.group[finals], rows.window[finals])
        finals, worst = finals[order], worst[order]
        history = history.with_errors(worst, rows.held[finals], rows.window[finals])
        return self.looks.take(np.flatnonzero(place < 0)), history

    def since(self, window: int) -> EarlyDecisions:
        """The decisions without those about earlier windows, which are closed and get no further finals."""
        tracks, looks = self.tracks, self.looks
        if (tracks.window >= window).all() and (looks.window >= window).all():
            return self
        return replace(
            self, tracks=tracks.take(tracks.window >= window), looks=looks.take(looks.window >= window)
        )

    def dumps(self) -> bytes:
        """The decisions as bytes; `loads` restores them exactly."""
        parts = {"tracks": self.tracks, "looks": self.looks, "history": self.history, "outcomes": self.totals}
        arrays: dict[str, Any] = {}
        for name, part in parts.items():
            arrays |= encode_arrays(name, part)
        return pack({"promised": self.history.promised, "miss": self.history.miss}, arrays)

    @classmethod
    def loads(cls, data: bytes) -> EarlyDecisions:
        """The decisions in bytes that `dumps` returned."""
        meta, arrays = unpack(data)
        history = decode_arrays("history", arrays)
        return cls(
            Tracks(**decode_arrays("tracks", arrays)),
            Looks(**decode_arrays("looks", arrays)),
            DecisionHistory(meta["promised"], meta["miss"], **history),
            DecisionTotals(**decode_arrays("outcomes", arrays)),
        )


def _sampled(group: Ints) -> Mask:
    """Always the same few groups, so that all looks at them are known."""
    distinct = np.unique(mix_bits(group.view(np.uint64)))
    words = mix_bits(group.view(np.uint64))
    if len(distinct) <= SAMPLED_GROUPS:
        return np.ones(len(group), np.bool_)
    mask: Mask = words <= distinct[SAMPLED_GROUPS - 1]
    return mask


def _by_chance(group: Ints, window: Ints) -> Ints:
    """An order of groups that differs from window to window, and does not depend on the order of the rows."""
    return np.argsort(mix_bits(group.view(np.uint64) ^ mix_bits(window.view(np.uint64))), kind="stable")


def _places(wanted: tuple[Ints, Ints], rows: tuple[Ints, Ints]) -> Ints:
    zeros = [np.zeros(len(columns[0]), np.int64) for columns in (wanted, rows)]
    return final_positions((zeros[0], *wanted), (zeros[1], *rows))
