"""The elements of a stream and of its windows: small, frozen, known to every layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class ClockKind(Enum):
    """What the numbers on a windowing attribute count."""

    TIME = "time"  # microseconds since 1970, UTC
    INTEGER = "integer"  # whatever the column counts
    ROWS = "rows"  # accepted rows of the stream, numbered from 0


@dataclass(frozen=True, order=True)
class Clock:
    """A windowing attribute (WATTR) of a stream: what its windows are measured along.

    `attribute` is the stream's column; for ROWS windows it is empty.
    """

    stream: str
    attribute: str
    kind: ClockKind = ClockKind.TIME

    def __hash__(self) -> int:
        return hash((self.stream, self.attribute))  # an Enum's own hash differs from process to process


@dataclass(frozen=True)
class WindowSpec:
    """Periodic half-open windows `[end - range, end)` whose ends are `phase` modulo `slide`.

    Both ways to align windows come down to the phase of the ends: the bracket form puts ends on
    `origin + k * slide`, Spark's `window()` puts starts on `offset + k * slide`.

    >>> WindowSpec.ending(range=60, slide=20).phase
    0
    >>> WindowSpec.starting(range=12, slide=5, offset=1).phase
    3
    """

    range: int
    slide: int
    phase: int = 0

    def __post_init__(self) -> None:
        if self.range <= 0 or self.slide <= 0:
            raise ValueError("a window's range and slide must be positive")
        object.__setattr__(self, "phase", self.phase % self.slide)

    @classmethod
    def ending(cls, range: int, slide: int, origin: int = 0) -> WindowSpec:
        """Windows whose ends fall on `origin + k * slide` (the bracket form)."""
        return cls(range, slide, origin)

    @classmethod
    def starting(cls, range: int, slide: int, offset: int = 0) -> WindowSpec:
        """Windows whose starts fall on `offset + k * slide` (Spark's `window()`)."""
        return cls(range, slide, offset + range)


class Kind(str, Enum):
    """Whether a result may still change."""

    EARLY = "early"
    FINAL = "final"


@dataclass(frozen=True)
class Punctuation:
    """No more rows of `stream` with `since <= attribute < until` that match `where`.

    `[ts <= t]` closes the windows that end at or before t, so `until` is t itself. An absent
    `since` means from the beginning; an empty `where` matches every row (the `*` of the papers).
    """

    clock: Clock
    until: int
    since: int | None = None
    where: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Prod:
    """Tell now what is known of some windows, whatever may still come for them.

    It asks for the windows that end at or before `until` (`{ts <= t}`), or, if `exactly`, for the last of
    those only (`{ts = t}`); without `until`, for every open window that holds tuples. `where` is a pattern
    on the groups, as of a punctuation; `queries` are the ones asked, None for all that read the stream.
    A window that holds nothing yet, or is closed already, has nothing to tell.
    """

    clock: Clock
    until: int | None = None
    exactly: bool = False
    where: tuple[tuple[str, Any], ...] = ()
    queries: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Emit:
    """When a query reports windows before they close (EMIT EARLY), and how sure its bounds are to be.

    `every` is a time of the engine's clock between two reports of all open windows; `at` are parts of the
    slide at which a window is reported in its last slide (0.75 is an aggressiveness of 25 %). `accuracy`
    lets the engine choose that part itself, within `between`. None of them: only when prodded.
    """

    every: int | None = None
    at: tuple[float, ...] = ()
    accuracy: float | None = None
    between: tuple[float, float] = (0.05, 1.0)
    confidence: float = 0.9
    quality: str | None = None  # a function of the user's that compares an early value with the final one


@dataclass(frozen=True)
class Using:
    """How a query without SLIDE is looked up: the structure that is kept for it (USING, WITHIN).

    `exact` is the default; `ordered_sharing` and `naive` are exact too. A `timegram` answers with intervals:
    of `buckets` buckets whose bounds follow the values, or lie evenly `between` two values, or are the given
    `bounds`; or with as many as it takes for an interval no wider than the part `within` of the answer. With
    a `slice` (a length on the query's clock) it keeps counts for each slice of time, not each tuple's time.
    """

    structure: str = "exact"
    buckets: int | None = None
    between: tuple[float, float] | None = None
    bounds: tuple[float, ...] = ()
    within: float | None = None
    slice: int | None = None


@dataclass(frozen=True)
class Summary:
    """What CREATE SUMMARY asks for: how tuples of a stream are kept and summarized by one column.

    Granularities cover `granularity`, `rate` times that, and so on to the `depth`-th; older tuples are let
    go. `structure` is how each is divided: `none` (T1 of the paper), by `time` only (T2), into `cells` of
    time and value (T3), into cells whose time zones adjust themselves (`adjusting`, T4), or as `auto` finds
    best. `kind` is the summary of a cell, a `countsketch` of `rows` by `width` counters or an exact
    `histogram`. Values are dealt out to `buckets` by a hash, or evenly `between` two numbers.
    """

    name: str
    stream: str
    column: str
    granularity: int
    rate: int = 4
    depth: int = 3
    structure: str = "auto"
    kind: str = "countsketch"
    rows: int = 5
    width: int = 16
    buckets: int = 256
    between: tuple[float, float] | None = None

    @property
    def reach(self) -> int:
        """How far back tuples are kept: the granularities together."""
        return sum(self.granularity * self.rate**i for i in range(self.depth))


@dataclass(frozen=True)
class Preference:
    """Where a query wants its budget spent: on tuples of most promise (`desc`), of least (`asc`), or on all
    in proportion to it (`weighted`).

    The promise of tuples in granularity i is lessened by `fade` to the power of i - 1. Tuples are looked at
    while they are within `window` of each other, or of the newest (None: while they are kept). A batch may
    cost so many `probes`, or so much `time` in microseconds; neither: as many as it takes.
    """

    order: str
    fade: float = 1.0
    window: int | None = None
    probes: int | None = None
    time: int | None = None


@dataclass(frozen=True)
class Register:
    """A query joins."""

    name: str
    text: str
    partial: bool = False  # also report windows that were seen only in part


@dataclass(frozen=True)
class Drop:
    """A query leaves."""

    name: str


@dataclass(frozen=True)
class Resume:
    """A suspended query takes part in batches again."""

    name: str


@dataclass(frozen=True)
class Summarize:
    """A summary is created; `text` is its CREATE SUMMARY."""

    name: str
    text: str


@dataclass(frozen=True)
class Forget:
    """A summary is dropped."""

    name: str


@dataclass(frozen=True)
class Tune:
    """A query that says EMIT EARLY tells its windows at one `point` of their last slide from now on; None:
    when it says itself."""

    name: str
    point: float | None


Control = Punctuation | Prod | Register | Drop | Resume | Summarize | Forget | Tune


@dataclass(frozen=True)
class Overload:
    """What happens to rows beyond a batch's budget, which is a number of rows or of microseconds.

    With `shed` these rows are dropped. Otherwise they are sidelined, and for every `share` new rows one
    sidelined row is resumed.
    """

    budget: int
    in_time: bool = False
    shed: bool = False
    share: int = 3
