"""All that is known of a query's early results: how to project them, bound them, judge them and time them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transom.elements import Emit
from transom.estimates.accuracy_loop import tuned
from transom.estimates.bounds import Bounds
from transom.estimates.experts import Asked, Expert, Experts, Voices, prior
from transom.estimates.groups import Groups, chosen_few, to_remember
from transom.estimates.marks import Runs, marks
from transom.estimates.monitor import Accuracy, Monitor, Quality
from transom.estimates.packing import packed, unpacked
from transom.estimates.pending import Pending, Sheet
from transom.estimates.quality import judged
from transom.estimates.sightings import Estimates, Finals, Flags, Floats, Ints, ItemKind, Sight, numbers

LEAST_BEHIND = 256  # windows that something may lie behind others and still have a final


@dataclass(frozen=True)
class Learned:
    """What is learned from early against final; a value, never changed in place."""

    emit: Emit
    items: tuple[ItemKind, ...]
    range_in_slides: float
    groups: Groups
    experts: Experts
    bounds: Bounds
    monitor: Monitor
    pending: Pending
    point: float  # the part of the slide at which windows are to be told, if an accuracy is asked for

    @classmethod
    def of(cls, emit: Emit, items: Sequence[ItemKind], range_in_slides: float) -> Learned:
        """Nothing learned yet: windows are told as late as allowed."""
        count = sum(item.is_number for item in items)
        return cls(
            emit,
            tuple(items),
            range_in_slides,
            Groups.empty(count),
            Experts.empty(count),
            Bounds.empty(count, emit.confidence),
            Monitor.empty(len(items)),
            Pending(),
            emit.between[1],
        )

    def estimate(self, sight: Sight) -> Estimates:
        """What the finals will be, and bounds that hold them with the confidence asked for."""
        asked = self._asked(numbers(sight.items, self.items), sight.left, sight.group)
        projected = self.experts.projected(asked, self.groups, self._grows)
        low, high = self.bounds.around(projected, self._units(asked.at, projected), asked.mark)
        return Estimates(projected, low, high)

    def seen(self, sight: Sight, estimates: Estimates) -> Learned:
        """Remembers what was seen, and said of it, until the finals come."""
        few = to_remember(sight.group, sight.window, marks(sight.left), sight.told)
        sheet = Sheet(
            sight.group,
            sight.window,
            sight.left,
            np.full(len(sight.group), sight.made),
            sight.told,
            numbers(sight.items, self.items),
            estimates.projected,
            estimates.low,
            estimates.high,
            sight.items if self.emit.quality is not None else None,
        )
        return replace(self, pending=self.pending.with_sheet(sheet if few.all() else sheet.taken(few)))

    def closed(self, finals: Finals, quality: Quality | None = None) -> Learned:
        """Pairs finals with what was seen of them, and learns."""
        # All sums are taken in one order, whatever order the groups came in.
        few = np.lexsort((finals.window, finals.group))
        few = few[chosen_few(finals.group)[few]]
        group, window = finals.group[few], finals.window[few]
        values = numbers(finals.items, self.items)[few]
        sheet, place, pending = self.pending.parted(window, group)
        if len(window):  # what is far behind closed without a final (HAVING), or never will
            pending = pending.since(int(window.max()) - round(max(LEAST_BEHIND, 16 * self.range_in_slides)))
        groups = self.groups.with_finals(group, window, values)
        if sheet is None:
            return replace(self, groups=groups.bounded(), pending=pending)
        order = np.lexsort((sheet.group, sheet.window, sheet.left))
        sheet, place = sheet.taken(order), place[order]
        runs, final = Runs(marks(sheet.left)), values[place]
        missed = _missed(sheet, final)
        learned = self._learned(sheet, runs, final, missed, groups)
        raw, projected = judged(self.items, sheet, final, finals, few[place], quality)
        monitor = self.monitor.learned(
            sheet.window, sheet.told, runs, raw, projected, _spread(missed, self._numeric, np.nan)
        )
        point = self.point
        if self.emit.accuracy is not None:
            seen, _, curve = monitor.curve()
            point = tuned(point, seen, curve, self.emit.accuracy, self.emit.between)
        return replace(learned, monitor=monitor, pending=pending, point=point)

    def without(self, window: Ints, group: Ints | None = None) -> Learned:
        """Forgets what was seen of windows, or of groups of theirs, that closed without a final."""
        return replace(self, pending=self.pending.without(window, group))

    def since(self, window: int) -> Learned:
        """Forgets what was seen of windows before one: those are closed, and will have no other final."""
        pending = self.pending.since(window)
        return self if pending is self.pending else replace(self, pending=pending)

    def accuracy(self) -> Accuracy:
        """What the monitor shows (figure 6.4)."""
        items = tuple(self.monitor.item(place, item.name) for place, item in enumerate(self.items))
        total, recent = self.monitor.scores()
        point = None if self.emit.accuracy is None else self.point
        return Accuracy(total, recent, items, self.emit.confidence, self.emit.accuracy, point)

    def _learned(self, sheet: Sheet, runs: Runs, final: Floats, missed: Floats, groups: Groups) -> Learned:
        """With the pairs in groups, experts and bounds; all are judged by what they knew before."""
        windows = len(np.unique(sheet.window))
        asked, at = self._asked(sheet.early, sheet.left, sheet.group), groups.places(sheet.group)
        told = Voices(self.experts, self.groups, asked).all()
        # A group's first final is its own level: what is learned from it is its profile.
        known = (asked.at >= 0)[:, None]
        level = np.where(known, _rows(self.groups.level, asked.at), groups.level[at])
        level = np.where(level > 0, level, self._typical)
        error = np.abs(final - sheet.projected)
        taught = self.experts.count[runs.mark] > 0  # without any profile, an error says nothing of the next
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scores = np.where(
                taught, (final - sheet.projected) / self._units(asked.at, sheet.projected), np.nan
            )
            said = (
                (final - sheet.early) / level,
                (told[Expert.ADDED] - sheet.early) / level,
                (told[Expert.RATIO] - sheet.early) / level,
                np.where(taught, error / level, np.nan),
                self.experts.error[runs.mark],
            )
        return replace(
            self,
            groups=groups.with_pairs(at, windows, said).bounded(),
            experts=self.experts.learned(runs, windows, asked, final, level, told, error),
            bounds=self.bounds.learned(runs, windows, scores, missed),
        )

    def _asked(self, early: Floats, left: Floats, group: Ints) -> Asked:
        likely = prior(left, self.range_in_slides, self._grows)
        return Asked(early, left, marks(left), self.groups.places(group), likely)

    def _units(self, at: Ints, projected: Floats) -> Floats:
        """The unit of each score: the group's level and how wide its errors are, or what is projected."""
        known = (at >= 0)[:, None]
        unit = np.where(known, _rows(self._widths, at), np.abs(projected))
        return np.where(unit > 0, unit, self._typical)

    @cached_property
    def _widths(self) -> Floats:
        return self.groups.level * self.groups.wide

    @cached_property
    def _typical(self) -> Floats:
        """By item, a level that stands for those that are nothing."""
        level = self.groups.level
        mean = level.mean(axis=0) if len(level) else np.zeros(level.shape[1])
        return np.where(mean > 0, mean, 1.0)

    @cached_property
    def _grows(self) -> Flags:
        return np.array([item.grows for item in self.items if item.is_number], np.bool_)

    @cached_property
    def _numeric(self) -> Flags:
        return np.array([item.is_number for item in self.items], np.bool_)

    @cached_property
    def packed(self) -> bytes:
        """The same as `dumps`: a checkpoint asks again for what has not changed."""
        return self.dumps()

    def dumps(self) -> bytes:
        """All of it as bytes; what `loads` makes of them goes on as if nothing had happened."""
        sheet = Sheet.joined(self.pending.sheets) if self.pending.sheets else None
        parts = {
            f"{room}.{name}": value
            for room, held in (
                ("groups", self.groups),
                ("experts", self.experts),
                ("bounds", self.bounds),
                ("monitor", self.monitor),
                ("pending", sheet),
            )
            for name, value in _fields(held).items()
            if name != "miss" and value is not None
        }
        used = self.bounds.place > 0
        parts["bounds.scores"] = self.bounds.scores[used]
        meta = {
            "emit": dataclasses.asdict(self.emit),
            "items": [dataclasses.astuple(item) for item in self.items],
            "range": self.range_in_slides,
            "point": self.point,
        }
        return packed(meta, parts)

    @classmethod
    def loads(cls, data: bytes) -> Learned:
        """What was dumped."""
        meta, parts = unpacked(data)
        rooms: dict[str, dict] = {}
        for name, part in parts.items():
            room, _, field = name.partition(".")
            rooms.setdefault(room, {})[field] = part
        emit = meta["emit"] | {"at": tuple(meta["emit"]["at"]), "between": tuple(meta["emit"]["between"])}
        empty = cls.of(Emit(**emit), [ItemKind(*item) for item in meta["items"]], meta["range"])
        bounds = rooms["bounds"]
        scores = empty.bounds.scores.copy()
        scores[bounds["place"] > 0] = bounds["scores"]
        return replace(
            empty,
            groups=Groups(**rooms["groups"]),
            experts=Experts(**rooms["experts"]),
            bounds=replace(empty.bounds, **(bounds | {"scores": scores})),
            monitor=Monitor(**rooms["monitor"]),
            pending=Pending((Sheet(**rooms["pending"]),) if "pending" in rooms else ()),
            point=meta["point"],
        )


def _fields(held: object) -> dict:
    return {} if held is None else {f.name: getattr(held, f.name) for f in dataclasses.fields(held)}  # type: ignore[arg-type]


def _rows(values: Floats, at: Ints) -> Floats:
    """Rows of groups; of the last where there is none, for the caller to replace."""
    return values[at] if len(values) else np.zeros((len(at), values.shape[1]))


def _missed(sheet: Sheet, final: Floats) -> Floats:
    """1 for a final out of bounds, 0 for one within, NaN where there is no final or were no bounds."""
    unknown = np.isnan(final) | np.isnan(sheet.low) | np.isnan(sheet.high)
    return np.where(unknown, np.nan, (final < sheet.low) | (final > sheet.high))


def _spread(columns: Floats, numeric: Flags, filler: float) -> Floats:
    """Columns by numeric item as columns by item."""
    found = np.full((len(columns), len(numeric)), filler)
    found[:, numeric] = columns
    return found
