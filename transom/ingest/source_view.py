"""The option `select` of a source: an SQL view over its rows, before they are a stream or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from transom.backends.base import FileVersion, Frame, InputFiles, StreamingInput
from transom.backends.expressions import quoted
from transom.backends.file_problems import FileProblem
from transom.backends.hidden_columns import CORRUPT, HIDDEN
from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql import Catalog, Relation, Scalars, bind_one
from transom.sql.binding.inlined_queries import view_columns
from transom.sql.clauses.query_parser import parse_view
from transom.sql.query import Query, Scalar
from transom.sql.syntax.spark_parser import tokens_of

_VIEW = "(select)"  # the name under which the text is bound; no stream has a name like it


@dataclass(frozen=True)
class SourceView:
    """A projection and a condition over the rows of a source, in canonical text.

    Rows that could not be decoded pass the condition: they are rejected later, and not dropped.
    """

    items: Mapping[str, Scalar]
    condition: str | None = None

    @classmethod
    def bind(cls, text: str, name: str, columns: Columns, scalars: Scalars) -> SourceView:
        """Bind `SELECT ... FROM name [WHERE ...]`; SQLError if the text is anything else."""
        visible = {column: kind for column, kind in columns.items() if column not in HIDDEN}
        catalog = Catalog({name: Relation(name, visible)}, views={_VIEW: text})
        where = _where(text, name)
        names = view_columns(_VIEW, catalog, scalars)
        query = _counting(f"({text.rstrip().rstrip(';')}\n) AS v", map(quoted, names), catalog, scalars, text)
        items = dict(zip(names, (call.args[0] for call in query.calls), strict=True))
        if where is None:
            return cls(items)
        condition = _counting(quoted(name), [f"({where}\n)"], catalog, scalars, text).calls[0].args[0]
        if not pa.types.is_boolean(condition.type):
            raise SQLError(f"WHERE is {condition.type}, expected a condition", text)
        return cls(items, condition.sql)

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The columns that it yields."""
        return {name: scalar.type for name, scalar in self.items.items()}

    def columns_over(self, columns: Columns) -> dict[str, pa.DataType]:
        """The columns that it yields over rows with these, hidden ones included."""
        return self.columns | {name: kind for name, kind in columns.items() if name in HIDDEN}

    def apply(self, frame: Frame) -> Frame:
        """The rows that it yields."""
        hidden = [name for name in HIDDEN if name in frame.columns]
        if self.condition is not None:
            kept = f"{quoted(CORRUPT)} IS NOT NULL OR " if CORRUPT in hidden else ""
            frame = frame.filter(f"{kept}({self.condition})")
        return frame.project({name: scalar.sql for name, scalar in self.items.items()}, hidden)


def _where(text: str, name: str) -> str | None:
    """The text of the condition; an error if the SELECT does more than project and filter the source."""
    parsed = parse_view(text)
    select = parsed.select
    if not isinstance(select, exp.Select):
        raise SQLError(f"select is one SELECT over {name}", text)
    for clause, node in select.args.items():
        if node and clause not in ("expressions", "from_", "where", "kind", "hint"):
            word = clause.rstrip("_").upper()
            raise SQLError(f"select projects and filters rows: {word} belongs to the queries", text)
    source = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(source, exp.Table) or source.name.casefold() != name.casefold():
        raise SQLError(f"select reads {name}: end it with FROM {name}", text)
    if select.args.get("where") is None:
        return None
    at = next(token for token in tokens_of(text) if token.text.upper() == "WHERE")
    return text[at.end + 1 :].rstrip().rstrip(";")


def _counting(
    source: str, expressions: Iterable[str], catalog: Catalog, scalars: Scalars, text: str
) -> Query:
    """A query that counts each of some expressions: it has their canonical texts and types."""
    counts = ", ".join(f"count({each}) AS c{place}" for place, each in enumerate(expressions))
    try:
        query = bind_one(f"SELECT {counts} FROM {source} [ROWS 1 SLIDE 1]", catalog, scalars)
    except SQLError as error:
        raise SQLError(f"select: {error.message}", text) from None
    if query.derived is not None:
        raise SQLError("select yields one row for a row: explode() belongs to the queries", text)
    return query


class ViewedFiles(InputFiles):
    """Files as a view shows their rows."""

    def __init__(self, files: InputFiles, view: SourceView):
        self._files, self._view = files, view
        self.columns = view.columns
        self.is_text, self.timestamp_format = files.is_text, files.timestamp_format
        self.versions_per_poll = files.versions_per_poll

    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        return self._files.pending(done)

    def read(self, files: Sequence[str]) -> Frame:
        return self._view.apply(self._files.read(files))

    def check(self, files: Sequence[str]) -> list[FileProblem]:
        return self._files.check(files)

    def unreadable_of(self, files: Sequence[str], error: Exception) -> list[FileProblem]:
        return self._files.unreadable_of(files, error)

    def version(self, file: str) -> FileVersion | None:
        return self._files.version(file)


class ViewedStream(StreamingInput):
    """A stream of the backend's system as a view shows its rows."""

    def __init__(self, stream: StreamingInput, view: SourceView):
        self._stream, self._view = stream, view

    @property
    def columns(self) -> Columns:
        return self._view.columns_over(self._stream.columns)

    def start(self, handler: Callable[[Frame, int], None], checkpoint: str, available_now: bool) -> None:
        def handle(frame: Frame, number: int) -> None:
            handler(self._view.apply(frame), number)

        self._stream.start(handle, checkpoint, available_now)

    def stop(self) -> None:
        self._stream.stop()

    def finish(self) -> None:
        self._stream.finish()

    @property
    def active(self) -> bool:
        return self._stream.active

    @property
    def error(self) -> BaseException | None:
        return self._stream.error
