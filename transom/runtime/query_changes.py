"""Changes of registered queries: another text, another name, a pause, a description. They take effect with a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from transom.durations import format_instant
from transom.elements import (
    ClockKind,
    Control,
    Describe,
    Drop,
    Edit,
    Pause,
    Register,
    Rename,
    Resume,
)
from transom.errors import SettingError, SQLError, StateError, near_miss
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership, PlanContext
from transom.plan.passes.admission import admission
from transom.plan.passes.stores import store_sets
from transom.plan.replacement import Replacement, changed_clauses, has_same_windows
from transom.results.result_rows import result_schema
from transom.runtime.loop import BatchLoop
from transom.runtime.membership import has_same_rows
from transom.runtime.names import check_query_name
from transom.runtime.registry import RegisteredQuery, Registry
from transom.sql.binding.cascades import relation_of
from transom.sql.bound_query import BoundQuery
from transom.sql.clauses.query_parser import has_preference
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query
from transom.windows import ids as windows
from transom.windows.intervals import IntervalSet

LONGEST_DESCRIPTION = 4_000  # characters
LONGEST_TAG = 60
MOST_TAGS = 20
LONGEST_UNIT = 20


@dataclass(frozen=True)
class EditOutcome:
    """What becomes of a query that is edited, as of the last committed batch.

    `kept` says whether all open windows are kept, `changed` names the clauses because of which some are not, and
    `results_continue` whether results from before stay readable together with the new ones. `message` says it in words.
    """

    text: str
    kept: bool
    changed: tuple[str, ...] = ()
    results_continue: bool = False
    message: str = ""

    def __str__(self) -> str:
        return self.message


class QueryChanges:
    """Queues changes of registered queries for the next batch, after it has checked them.

    `bind` gives the bound query of a text that is to have a name.
    """

    def __init__(
        self,
        loop: BatchLoop,
        bind: Callable[[str, str], BoundQuery],
        wake: Callable[[], None],
    ):
        self.loop, self._bind, self._wake = loop, bind, wake
        self._last: tuple[Registry, tuple[Control, ...], dict[str, RegisteredQuery]] | None = None

    def edit(self, name: str, text: str, dry_run: bool = False) -> EditOutcome:
        """Give a query another text; what is wrong with it is raised, and nothing changes.

        A dry run only says what would become of the query.
        """
        directory = self.loop.directory
        before = self.entry(name)
        bound = self._bind(name, text)
        if isinstance(bound, PreferenceQuery) != has_preference(before.text):
            has = "no" if isinstance(bound, PreferenceQuery) else "a"
            raise SettingError(
                f"{name} has {has} WITH PREFERENCE, which an edit can't change: register another"
            )
        if before.partial and isinstance(bound, Query) and bound.is_row_query:
            raise SettingError(f"{name} reports windows that it saw in part, and the new text has no window")
        if before.partial and isinstance(bound, Query) and bound.stream_join is not None:
            raise SettingError(f"{name} reports windows that it saw in part, which joins of streams can't")
        with directory.lock:
            before = self.entry(name)
            if before.text == text and before.suspended is None:
                return EditOutcome(text, True, (), True, "nothing changes: the text is the same")
            directory.bind()
            outcome = self._outcome(before, text, bound)
            self._check_readers(name, bound, outcome)
            if dry_run:
                return outcome
            if isinstance(bound, PreferenceQuery):
                directory.bound_preference_queries[text] = bound
            elif isinstance(bound, Query):
                directory.bound[text] = bound
            directory.push([Edit(name, text, before.partial)])
        self._wake()
        return outcome

    def rename(self, name: str, to: str) -> None:
        """Give a query another name."""
        directory = self.loop.directory
        with directory.lock:
            self._check_rename(name, to)
            if name == to:
                return
            directory.push([Rename(name, to)])
        self._wake()

    def _check_rename(self, name: str, to: str) -> None:
        """Refuse a name that a query can't get."""
        directory = self.loop.directory
        self.entry(name)
        if name == to:
            return
        check_query_name(self.loop, to)
        if to in directory.texts:
            raise StateError(f"there is a query named {to} already")
        if any(isinstance(element, Drop) and element.name == to for element in self._control()):
            raise StateError(f"the query named {to} leaves with the next batch: rename {name} after that")
        if readers := directory.readers(name):
            raise StateError(f"{name} is read by {', '.join(readers[:3])}: drop that first")

    def pause(self, name: str) -> None:
        """Let a query take no part in batches until it is resumed."""
        with self.loop.directory.lock:
            entry = self.entry(name)
            if entry.suspended is not None:
                raise StateError(f"the query {name} is suspended already: {entry.suspended}")
            if entry.paused:
                raise StateError(f"the query {name} is paused already")
            self.loop.directory.push([Pause(name)])
        self._wake()

    def resume(self, name: str) -> None:
        """Let a suspended or paused query take part in batches again."""
        with self.loop.directory.lock:
            if self.entry(name).takes_part:
                raise StateError(f"the query {name} is not suspended, and not paused")
            self.loop.directory.push([Resume(name)])
        self._wake()

    def describe(
        self,
        name: str,
        description: str | None,
        tags: Iterable[str] | None,
        units: tuple[tuple[str, str], ...] | None,
    ) -> None:
        """Set the description of a query, its tags, or the units of its columns; None leaves what there is."""
        given = None if tags is None else checked_tags(tags)
        if description is not None and len(description) > LONGEST_DESCRIPTION:
            raise SettingError(
                f"the description has {len(description):,} characters; the limit is {LONGEST_DESCRIPTION:,}"
            )
        with self.loop.directory.lock:
            entry = self.entry(name)
            text = entry.description if description is None else description.strip()
            element = Describe(
                name, text, entry.tags if given is None else given, entry.units if units is None else units
            )
            self.loop.directory.push([element])
        self._wake()

    # --- queries as they will be ---

    def entry(self, name: str) -> RegisteredQuery:
        """A query as it will be when the waiting control has taken effect; StateError if there is none."""
        entry = self._entries().get(name)
        if entry is None:
            raise StateError(f"there is no query named {name}{near_miss(name, self._entries())}")
        return entry

    def _control(self) -> tuple[Control, ...]:
        """The control of the batch that was begun, and that which waits."""
        directory = self.loop.directory
        intent = directory.intent
        return (*(intent.control if intent is not None else ()), *directory.waiting.control)

    def _entries(self) -> dict[str, RegisteredQuery]:
        with self.loop.directory.lock:
            registry, control = self.loop.directory.registry, self._control()
        if not control:
            return registry.entries
        if self._last is None or self._last[0] is not registry or self._last[1] != control:
            self._last = registry, control, _after(registry, control, self.loop.state.batch_id + 1)
        return self._last[2]

    # --- what is kept ---

    def _outcome(self, entry: RegisteredQuery, text: str, bound: BoundQuery) -> EditOutcome:
        """What an edit keeps, given the entry as it will be before it."""
        registry = self.loop.directory.registry
        joined = next((one for one in registry if one.identity == entry.identity and one.takes_part), None)
        if entry.paused:
            return EditOutcome(text, False, (), False, "the query stays paused")
        if joined is None or not entry.takes_part:
            return EditOutcome(text, False, (), False, "the query joins with the next batch, like a new one")
        old = joined.executable
        if not isinstance(bound, Query) or not isinstance(old, CompiledQuery):
            return EditOutcome(text, False, (), False, "what the query has found and deferred begins anew")
        new = compile_query(joined.name, bound, registry.naive)
        if old.is_row_query and new.is_row_query:
            if has_same_rows(old, new):
                return EditOutcome(text, True, (), True, "the query finds the same rows; its results go on")
            return EditOutcome(
                text, False, (), False, "the query finds other rows from now on; results begin anew"
            )
        if not old.is_standing or not new.is_standing:
            return self._lookup_outcome(text, new)
        return self._window_outcome(joined, text, old, new)

    def _lookup_outcome(self, text: str, new: CompiledQuery) -> EditOutcome:
        keys = [key for each in store_sets([new]) for key in each.stores] if new.is_on_demand else []
        if keys and all(key in self.loop.state.stores for key in keys):
            return EditOutcome(text, True, (), False, "what lookups have kept is kept")
        return EditOutcome(text, False, (), False, "the query begins anew, like a new one")

    def _window_outcome(
        self, entry: RegisteredQuery, text: str, old: CompiledQuery, new: CompiledQuery
    ) -> EditOutcome:
        state = self.loop.state
        changed = tuple(changed_clauses(old, new))
        continues = has_same_windows(old, new) and result_schema(old.query) == result_schema(new.query)
        replacement, own = Replacement(old, new, continues), state.queries.get(entry.name)
        after = self._unseen(entry, replacement)
        before = None if own is None else own.unseen
        lost = None if after is None or before is None else after - before
        goes_on = "" if continues else "; results begin anew"
        is_new = new.is_keyed and (
            own is None or not replacement.takes_over(state, own)
        )  # it numbers rows anew
        if lost is not None and not lost and not is_new:
            return EditOutcome(text, True, (), continues, f"open windows are kept{goes_on}")
        why = f", because {' and '.join(changed)} changed" if changed else ""
        if lost is None or not new.query.window.is_shared_by_groups:
            windows_text = "open windows are dropped"
        else:
            first = windows.first_starting(new.query.window, max(stop for _, stop in lost))
            begin = windows.window_start(new.query.window, first)
            is_time = new.clock.kind is ClockKind.TIME
            begin_text = format_instant(begin) if is_time else f"{begin:,}"
            verb = "reported in part" if entry.partial else "not reported"
            windows_text = f"windows that begin before {begin_text} are {verb}"
        return EditOutcome(text, False, changed, continues, f"{windows_text}{why}{goes_on}")

    def _unseen(self, entry: RegisteredQuery, replacement: Replacement) -> IntervalSet | None:
        """The times that the new query can't answer for, if it took the place of the old one now."""
        registry, state, new = self.loop.directory.registry, self.loop.state, replacement.after
        if entry.name not in state.queries:
            return None
        membership = Membership(
            {**registry.compiled(), entry.name: new},
            [new],
            partial=[entry.name] if entry.partial else [],
            result_streams={new.query.stream} - self.loop.declared.streams.keys(),
            replaced={entry.name: replacement},
        )
        decision = admission(PlanContext(state, state, self.loop.planner.strategy, membership=membership))
        assert decision is not None and decision.state is not None
        return decision.state.queries[entry.name].unseen

    def _check_readers(self, name: str, bound: BoundQuery, outcome: EditOutcome) -> None:
        """Refuse an edit that changes what other queries read."""
        directory = self.loop.directory
        readers = directory.readers(name)
        if not readers:
            return
        old = directory.known_queries().get(name)
        is_same = False
        if old is not None and isinstance(bound, Query) and outcome.kept:
            parts = [(each.stream, each.window, each.keys) for each in (old, bound)]
            try:
                is_same = parts[0] == parts[1] and relation_of(name, old) == relation_of(name, bound)
            except SQLError:  # queries of its new kind can't be read
                is_same = False
        if not is_same:
            raise StateError(
                f"{name} is read by {', '.join(readers[:3])}: its columns and windows must stay as they are, or "
                "drop that first"
            )


def _after(registry: Registry, control: Iterable[Control], batch_id: int) -> dict[str, RegisteredQuery]:
    """The entries of a registry after the control of a batch, without their bound forms where they change."""
    entries = dict(registry.entries)
    for element in control:
        match element:
            case Edit(name, text) if name in entries:
                entries[name] = replace(
                    entries[name], text=text, suspended=None, executable=None, edited=batch_id
                )
            case Register(name, text, partial):
                entries[name] = RegisteredQuery(name, text, partial)
            case Rename(name, to) if name in entries:
                entries = {to if each == name else each: entry for each, entry in entries.items()}
                entry = entries[to]
                entries[to] = replace(entry, name=to, origin=entry.stored_name)
            case Pause(name) if name in entries:
                entries[name] = replace(entries[name], paused=True)
            case Resume(name) if name in entries:
                entries[name] = replace(entries[name], suspended=None, paused=False)
            case Describe(name, description, tags, units) if name in entries:
                entries[name] = replace(entries[name], description=description, tags=tags, units=units)
            case Drop(name):
                entries.pop(name, None)
    return entries


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags without repeats; SettingError if one is empty or too long, or if there are too many.

    >>> checked_tags(["fraud", " card ", "fraud"])
    ('fraud', 'card')
    """
    if isinstance(tags, str):
        raise SettingError(f"tags are a list, not {tags!r}")
    given = tuple(dict.fromkeys(tag.strip() for tag in tags))
    for tag in given:
        if not 0 < len(tag) <= LONGEST_TAG or not tag.isprintable() or "," in tag:
            raise SettingError(
                f"not a tag: {tag[:40]!r}; use up to {LONGEST_TAG} printable characters, without commas"
            )
    if len(given) > MOST_TAGS:
        raise SettingError(f"{len(given)} tags are too many: the limit is {MOST_TAGS}")
    return given


def checked_units(units: Mapping[str, str], query: BoundQuery) -> tuple[tuple[str, str], ...]:
    """Pairs of column and unit, which may be empty; SettingError if the query has no such value, or a unit is long."""
    if not isinstance(units, Mapping):
        raise SettingError(f"units are a mapping from column to unit, not {units!r}")
    columns = [name for name, is_key in query.selected if not is_key]
    for column, unit in units.items():
        if column not in columns:
            raise SettingError(f"the query has no value named {column}; its values are {', '.join(columns)}")
        if not isinstance(unit, str) or len(unit.strip()) > LONGEST_UNIT or not unit.isprintable():
            raise SettingError(
                f"not a unit of {column}: {str(unit)[:40]!r}; use up to {LONGEST_UNIT} printable characters"
            )
    return tuple((column, unit.strip()) for column, unit in units.items())
