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
class CalendarLength:
    """A length in whole months or whole days: a year has 12 months, a week has 7 days. One of the two is 0."""

    months: int = 0
    days: int = 0

    @property
    def most_days(self) -> int:
        """The days that it has at the most."""
        return 31 * self.months + self.days

    @property
    def fewest_days(self) -> int:
        """The days that it has at the least."""
        return 28 * self.months + self.days


@dataclass(frozen=True)
class Calendar:
    """The lengths of calendar windows: whole days or months of a time zone.

    `range` is the length of windows, and `slide` the distance between their ends. `slide` is None for cumulative
    windows whose step is a duration. Windows end at `origin` and at whole slides before and after it. The origin is a
    local time of the zone, in microseconds since 1970-01-01 00:00.
    """

    zone: str
    range: CalendarLength
    slide: CalendarLength | None
    origin: int = 0


MICROSECONDS_OF_DAY = 86_400_000_000
DAYS_OF_MONTH = 30.436875  # on average


@dataclass(frozen=True)
class WindowSpec:
    """Half-open windows `[end - range, end)` whose ends are `phase` modulo `slide`; or sessions.

    Sessions (`is_session`) last from their first row to one gap, the range, after their last. They may end at any
    tick, so that their slide is 1. Windows of the last rows of a key (`is_keyed`) are periodic along the
    row numbers of each key.

    Both ways to align windows come down to the phase of the ends: the bracket form puts ends on
    `origin + k * slide`, Spark's `window()` puts starts on `offset + k * slide`.

    Cumulative windows start at `phase` modulo `range`; each is a slide longer than the one before, up to the range.
    Calendar windows have a `calendar`; their `range` is the longest that a window can be, their `slide` the usual one.

    >>> WindowSpec.ending(range=60, slide=20).phase
    0
    >>> WindowSpec.starting(range=12, slide=5, offset=1).phase
    3
    """

    range: int
    slide: int
    phase: int = 0
    is_cumulative: bool = False
    calendar: Calendar | None = None
    is_session: bool = False
    is_keyed: bool = False

    def __post_init__(self) -> None:
        if self.range <= 0 or self.slide <= 0:
            raise ValueError("a window's range and slide must be positive")
        if self.is_cumulative and self.calendar is None and self.range % self.slide:
            raise ValueError("the slide of cumulative windows must divide their range")
        object.__setattr__(self, "phase", self.phase % (self.range if self.is_cumulative else self.slide))

    @property
    def shortest(self) -> int:
        """A length that no window is shorter than."""
        if self.calendar is None:
            return self.slide if self.is_cumulative else self.range
        if self.is_cumulative:
            return 0
        return (self.calendar.range.fewest_days - 1) * MICROSECONDS_OF_DAY  # zones can skip up to a day

    @classmethod
    def ending(cls, range: int, slide: int, origin: int = 0) -> WindowSpec:
        """Windows whose ends fall on `origin + k * slide` (the bracket form)."""
        return cls(range, slide, origin)

    @classmethod
    def starting(cls, range: int, slide: int, offset: int = 0) -> WindowSpec:
        """Windows whose starts fall on `offset + k * slide` (Spark's `window()`)."""
        return cls(range, slide, offset + range)

    @classmethod
    def cumulative(cls, range: int, slide: int, origin: int = 0) -> WindowSpec:
        """Windows that start at `origin + k * range`, each a slide longer than the one before."""
        return cls(range, slide, origin, is_cumulative=True)

    @classmethod
    def following(
        cls, calendar: Calendar, is_cumulative: bool = False, step: int | None = None
    ) -> WindowSpec:
        """Calendar windows; `step` is the slide of cumulative windows if it is a duration."""
        longest = (calendar.range.most_days + 1) * MICROSECONDS_OF_DAY  # zones can repeat up to a day
        if step is None:
            assert calendar.slide is not None
            days = calendar.slide.months * DAYS_OF_MONTH + calendar.slide.days
            step = round(days * MICROSECONDS_OF_DAY)
        return cls(longest, step, 0, is_cumulative, calendar)

    @classmethod
    def session(cls, gap: int) -> WindowSpec:
        """Sessions: rows of a group that are at most the gap apart are in one."""
        return cls(gap, 1, 0, is_session=True)

    @classmethod
    def of_keys(cls, rows: int, slide: int) -> WindowSpec:
        """Windows of the last rows of each key, one for every `slide` rows of the key."""
        return cls(rows, slide, 0, is_keyed=True)

    @property
    def is_shared_by_groups(self) -> bool:
        """Whether all groups have the same windows: not for SESSION, and not for PARTITION BY."""
        return not self.is_session and not self.is_keyed


class Kind(str, Enum):
    """What a result says about its window and group.

    An early result may still change, and a final one does not, unless its query has EMIT CORRECTIONS. Then a
    correction replaces the newest result, and a retraction repeats the result that does not hold any more.
    """

    EARLY = "early"
    FINAL = "final"
    CORRECTION = "correction"
    RETRACTION = "retraction"


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
class EmptyWindows:
    """Which windows without rows have results (EMIT EMPTY): at most so many in a row for a group.

    `length` is a stretch of the window's clock that is given instead of a number of windows.
    """

    windows: int = 100
    length: int | None = None

    def most(self, slide: int) -> int:
        """How many empty windows in a row are reported, given the distance of two windows.

        >>> EmptyWindows().most(20), EmptyWindows(length=60).most(20), EmptyWindows(length=10).most(20)
        (100, 3, 0)
        """
        return self.windows if self.length is None else self.length // slide


@dataclass(frozen=True)
class BackfillStart:
    """The time since when a new query asks for retained rows (BACKFILL): as text or a number; None for all."""

    since: str | int | None = None


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
class AlertTerms:
    """When the result rows of a query make an alert fire, and what its events carry (ALERT).

    An alert fires for a group when HAVING held for `windows` windows in a row, and is resolved when it did not hold for
    `resolve_after` windows in a row. While it fires, a reminder comes for every `repeat` of the window's clock.
    `labels` and `annotations` are pairs of names and texts; `{name}` in an annotation stands for a value of the result.
    `sinks` are the names of the sinks that get its events; None: all of the engine.
    """

    windows: int = 1
    resolve_after: int = 1
    repeat: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    sinks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class AlertRule:
    """An alert on the results of a query, by its name."""

    name: str
    query: str
    terms: AlertTerms = AlertTerms()


@dataclass(frozen=True)
class Matcher:
    """A condition on an alert: its name (`alert`), a group column or a label compared with a text.

    `op` is `=`, `!=`, `=~` or `!~`; the last two compare with a regular expression that the whole text must match.
    """

    name: str
    op: str
    value: str


@dataclass(frozen=True)
class Silence:
    """Alerts that all `matchers` match are silent until a time of the engine's clock."""

    id: str
    matchers: tuple[Matcher, ...]
    until: int
    created: int
    author: str = ""
    comment: str = ""


@dataclass(frozen=True)
class CreateAlert:
    """An alert is created, or an alert of this name gets another definition."""

    rule: AlertRule


@dataclass(frozen=True)
class DropAlert:
    """An alert is dropped."""

    name: str


@dataclass(frozen=True)
class CreateSilence:
    """Alerts are silenced."""

    silence: Silence


@dataclass(frozen=True)
class EndSilence:
    """A silence ends before its time."""

    id: str


@dataclass(frozen=True)
class Register:
    """A query joins."""

    name: str
    text: str
    partial: bool = False  # also report windows that were seen only in part
    since: int | None = None  # a time: retained rows from there on are replayed for the query first


@dataclass(frozen=True)
class Edit(Register):
    """A registered query gets another text. It keeps its name, and its open windows where slices answer them."""


@dataclass(frozen=True)
class Adopt:
    """A query for which retained rows were replayed up to the batch before takes part in batches from now on.

    `joined` is the batch that it was registered with. If the replay failed, `problem` says why, and the query is
    suspended.
    """

    name: str
    joined: int
    problem: str | None = None


@dataclass(frozen=True)
class Rename:
    """A query gets another name; all else stays as it is."""

    name: str
    to: str


@dataclass(frozen=True)
class Pause:
    """A query takes no part in batches until it is resumed."""

    name: str


@dataclass(frozen=True)
class Describe:
    """A query gets a description, tags, and units of its columns, in place of those that it has."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()  # column and unit


@dataclass(frozen=True)
class Drop:
    """A query leaves."""

    name: str


@dataclass(frozen=True)
class Resume:
    """A suspended or paused query takes part in batches again."""

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
class CreateView:
    """A view is created, or replaced; `text` is its SELECT."""

    name: str
    text: str


@dataclass(frozen=True)
class DropView:
    """A view is dropped."""

    name: str


@dataclass(frozen=True)
class Tune:
    """A query that says EMIT EARLY tells its windows at one `point` of their last slide from now on; None:
    when it says itself."""

    name: str
    point: float | None


Control = (
    Punctuation
    | Prod
    | Register
    | Edit
    | Adopt
    | Rename
    | Pause
    | Describe
    | Drop
    | Resume
    | Summarize
    | Forget
    | CreateView
    | DropView
    | Tune
    | CreateAlert
    | DropAlert
    | CreateSilence
    | EndSilence
)


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
