"""An engine from a pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import fields
from typing import Iterator

from transom.backends.secrets import with_secrets
from transom.cli.pipeline import Pipeline, Settings
from transom.cli.spinner import spinner
from transom.errors import SettingError, SQLError
from transom.plan.explain.text_parts import counted
from transom.plan.limits import Limits
from transom.runtime.engine import Engine
from transom.runtime.handles import QueryHandle
from transom.runtime.views import ViewInfo
from transom.sql.clauses.summary import parse_summary
from transom.sql.syntax.canonical import quote

log = logging.getLogger("transom")

NO_SINKS = (
    "a query without SLIDE emits no results, so it can't have sinks: remove them, or add a SLIDE; "
    "`transom run` prints its lookups (--lookup-every '10 seconds')"
)


def open_engine(settings: Settings) -> Engine:
    """An engine with these settings, in a new Spark session unless they name the local backend."""
    options = dict(settings)
    chosen = {name: options.pop(name) for name in [field.name for field in fields(Limits)] if name in options}
    options |= {"limits": Limits(**chosen)} if chosen else {}
    master, config = options.pop("master", None), options.pop("spark", None)
    if options.get("backend", "spark") != "spark":
        if master is not None:
            raise SettingError(f"a Spark master is for the Spark backend, not for {options['backend']!r}")
        return Engine(**options)
    from transom.backends.spark.session import start_session  # the local backend needs no pyspark

    session = start_session(master=master or "local[*]", config=with_secrets(config))
    return Engine(spark=session, **options)


@contextmanager
def built_engine(pipeline: Pipeline, keep: bool = False) -> Iterator[Engine]:
    """An engine with everything that the pipeline declares; it is stopped at the end of the block."""
    starting = "the engine" if pipeline.engine.get("backend", "spark") != "spark" else "Spark"
    with spinner(f"Starting {starting}"):
        engine = open_engine(pipeline.engine)
    try:
        with spinner(f"Registering {counted(len(pipeline.queries), 'query', 'queries')}"):
            declare_pipeline(engine, pipeline, keep)
        yield engine
    finally:
        engine.stop()


def declare_pipeline(engine: Engine, pipeline: Pipeline, keep: bool = False) -> None:
    """Declare everything in a pipeline, in the order of dependencies; an error names the declaration.

    With `keep`, queries, views and summaries that are only in the checkpoint stay: users registered them while the
    pipeline was served.
    """
    for name, settings in pipeline.tables.items():
        with _error_place(f"table {name}:"):
            engine.table(name, **_with_source(settings))
    for name, settings in pipeline.streams.items():
        with _error_place(f"stream {name}:"):
            _declare_stream(engine, name, _with_source(settings))
    _drop_outdated(engine, pipeline, keep)
    for name, text in pipeline.views.items():
        with _error_place(f"view {name}:"):
            engine.view(name, text)
    for text in pipeline.summaries:
        with _error_place("summaries:"):
            engine.execute(text)
    for name, settings in pipeline.alert_sinks.items():
        with _error_place(f"alert_sinks.{name}:"):
            _declare_alert_sink(engine, name, settings)
    queries = _register_queries(engine, pipeline)
    for name, entry in pipeline.queries.items():
        for at, sink in enumerate(entry.sinks):
            with _error_place(f"query {name}: sink {at}:"):
                if queries[name].on_demand:
                    raise SettingError(NO_SINKS)
                queries[name].sink(**_with_options(sink))
    _declare_alerts(engine, pipeline, keep)
    for at, sink in enumerate(pipeline.sinks):
        with _error_place(f"sink {at}:"):
            engine.sink(**_with_options(sink))


def _declare_alert_sink(engine: Engine, name: str, settings: Settings) -> None:
    options = dict(settings)
    if "file" in options:
        engine.alerting.file_sink(name, options["file"])
    elif "topic" in options:
        engine.alerting.topic(name, options["topic"], **options.get("options", {}))
    else:
        engine.alerting.webhook(name, options.pop("webhook"), **options)


def _declare_alerts(engine: Engine, pipeline: Pipeline, keep: bool) -> None:
    """Declare the alerts of the file; those that are only in the checkpoint are dropped, unless they are kept."""
    if not keep:
        for name, summary in engine.alerting.summaries().items():
            if name not in pipeline.alerts and not summary.is_written:
                log.warning("alert %s of the checkpoint is no longer in the pipeline: dropped", name)
                engine.alerting.drop(name)
    for name, settings in pipeline.alerts.items():
        with _error_place(f"alert {name}:"):
            engine.alert(name, **settings)


def _declare_stream(engine: Engine, name: str, settings: Settings) -> None:
    replay = settings.pop("replay", None)
    if settings.pop("push", False):
        engine.feed(name, **settings)
    elif replay is None:
        engine.stream(name, **settings)
    else:
        for setting in ("decode", "select"):
            if setting in settings:
                raise SettingError(f"a replay reads a path of files as they are: leave out {setting}")
        if "source" not in settings:
            raise SettingError("a replay needs a path of files")
        engine.replay(name, settings.pop("source"), time=settings.pop("time"), **settings, **replay)


def _drop_outdated(engine: Engine, pipeline: Pipeline, keep: bool) -> None:
    """Drop queries, views and summaries of the checkpoint that the file does not have, or has with another text.

    A query also starts over when its summary does, or a view that it reads.
    """
    outdated_views = _outdated_views(engine, pipeline, keep)
    readers = {reader for view in outdated_views for reader in view.readers}
    wanted = {summary.name: summary for summary in map(parse_summary, pipeline.summaries)}
    outdated = {
        name: summary
        for name, summary in engine.summaries().items()
        if wanted.get(name) != parse_summary(summary.text) and (name in wanted or not keep)
    }
    guided = {query for summary in outdated.values() for query in summary.queries}
    for name, query in engine.queries().items():
        if name not in pipeline.queries and keep:
            continue
        elif name not in pipeline.queries:
            log.warning("query %s of the checkpoint is no longer in the pipeline: dropped", name)
            query.drop()
        elif pipeline.queries[name].sql != query.text:
            log.warning("the text of query %s differs from the checkpoint's: the query starts over", name)
            query.drop()
        elif name in readers:
            log.warning("query %s starts over, because a view that it reads has changed", name)
            query.drop()
        elif name in guided:
            log.warning("query %s starts over, because its summary does", name)
            query.drop()
    for view in reversed(outdated_views):  # a view is newer than those that it reads
        what = "has changed" if view.name in pipeline.views else "is no longer in the pipeline"
        log.warning("view %s of the checkpoint is dropped: it, or a view that it reads, %s", view.name, what)
        engine.execute(f"DROP VIEW {quote(view.name)}")
    for name in outdated:
        if name in wanted:
            log.warning("the text of summary %s differs from the checkpoint's: the summary starts over", name)
        else:
            log.warning("summary %s of the checkpoint is no longer in the pipeline: dropped", name)
        engine.execute(f"DROP SUMMARY {quote(name)}")


def _outdated_views(engine: Engine, pipeline: Pipeline, keep: bool) -> list[ViewInfo]:
    """The views of the checkpoint that are not in the file, or differ, and the views that read those."""
    views = engine.views()
    outdated = {
        name
        for name, view in views.items()
        if pipeline.views.get(name) != view.text and (name in pipeline.views or not keep)
    }
    outdated |= {reader for name in outdated for reader in views[name].readers if reader in views}
    return [view for name, view in views.items() if name in outdated]


def _register_queries(engine: Engine, pipeline: Pipeline) -> dict[str, QueryHandle]:
    """Register all queries together, since there may be thousands."""
    queries: dict[str, QueryHandle] = {}
    alike: dict[tuple[bool, str | None], dict[str, str]] = {}
    known = engine.queries()
    for name, entry in pipeline.queries.items():
        is_new = name not in known or known[name].text != entry.sql
        alike.setdefault((entry.partial, entry.since if is_new else None), {})[name] = entry.sql
    for (partial, since), texts in alike.items():
        with _error_place("query"):  # the engine adds the query's name
            queries |= engine.register_all(texts, partial=partial, since=since)
    return queries


def _with_source(settings: Settings) -> Settings:
    """The settings with `path` renamed to `source`, the engine's parameter."""
    return {"source" if name == "path" else name: value for name, value in settings.items()}


def _with_options(sink: Settings) -> Settings:
    """The settings of a sink with its options beside them, as the engine expects."""
    return {name: value for name, value in sink.items() if name != "options"} | sink.get("options", {})


@contextmanager
def _error_place(where: str) -> Iterator[None]:
    """Add the place to the message of an error."""
    try:
        yield
    except SQLError as error:
        raise SQLError(f"{where} {error.message}", error.text, error.start, error.end) from None
    except SettingError as error:
        raise type(error)(f"{where} {error}") from None
