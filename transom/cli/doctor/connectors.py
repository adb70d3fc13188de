"""Checks of connectors: where the package of each format comes from, tables of Delta Lake, and secrets."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from transom.backends.connector_packages import DRIVERS, database_of, format_package
from transom.backends.delta_rows import VERSION_AS_OF
from transom.backends.delta_sink import DELTA_SINK_OPTIONS, is_table_property
from transom.backends.delta_table import DeltaLocation, is_delta
from transom.backends.secrets import with_secrets, without_secrets
from transom.cli.doctor.finding import Finding, fine, problem, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.cli.pipeline import Pipeline, Settings
from transom.errors import SettingError, StateError
from transom.extras import install_command
from transom.ingest.delta_source import DELTA_STREAM_OPTIONS

PACKAGES_SETTING = "spark.jars.packages"
JARS_SETTINGS = {"spark.jars": ",", "spark.driver.extraClassPath": os.pathsep}  # with what separates the jars
# Where Spark and Maven keep what they have downloaded, below the home directory.
DOWNLOADS = (".ivy2.5.2/jars", ".ivy2.5.2/cache", ".ivy2/jars", ".ivy2/cache", ".m2/repository")


@dataclass(frozen=True)
class Connector:
    """A stream, table or sink that needs a package or a secret, or something else with options."""

    place: str  # in the pipeline file
    format: str
    options: Mapping[str, Any]
    path: str | None = None


def check_connectors(subject: DoctorSubject) -> Iterator[Finding]:
    """The packages of the pipeline's formats, its tables of Delta Lake, and its secrets."""
    if subject.pipeline is None:
        return
    connectors = list(connectors_of(subject.pipeline))
    configuration = _spark_configuration(subject.pipeline)
    packages = dict.fromkeys(_needed_packages(connectors))
    for package in packages if subject.needs_spark else ():
        yield _package_finding(package, configuration)
    yield from _delta_findings([each for each in connectors if is_delta(each.format)])
    for connector in (*connectors, *_others_with_secrets(subject.pipeline)):
        yield from _secret_findings(connector)


def connectors_of(pipeline: Pipeline) -> Iterator[Connector]:
    """The streams, tables and sinks of a pipeline, and their decoders."""
    sources: dict[str, Settings] = {
        **{f"streams.{name}": each for name, each in pipeline.streams.items()},
        **{f"tables.{name}": each for name, each in pipeline.tables.items()},
        **{f"sinks[{at}]": each for at, each in enumerate(pipeline.sinks)},
        **{
            f"queries.{name}.sinks[{at}]": each
            for name, query in pipeline.queries.items()
            for at, each in enumerate(query.sinks)
        },
        **{
            f"alert_sinks.{name}": {"format": "kafka", "options": each.get("options", {})}
            for name, each in pipeline.alert_sinks.items()
            if "topic" in each
        },
    }
    for place, settings in sources.items():
        options = settings.get("options", {})
        yield Connector(place, str(settings.get("format", "")), options, settings.get("path"))
        decode = settings.get("decode")
        if decode:
            format = decode if isinstance(decode, str) else decode["format"]
            yield Connector(f"{place}.decode", format, {})


def _others_with_secrets(pipeline: Pipeline) -> Iterator[Connector]:
    """Options elsewhere in a pipeline that may have references to secrets."""
    yield Connector("engine.spark", "", pipeline.engine.get("spark", {}))
    for name, settings in pipeline.alert_sinks.items():
        texts = {key: settings[key] for key in ("webhook", "secret") if key in settings}
        yield Connector(f"alert_sinks.{name}", "", texts | settings.get("headers", {}))


def _needed_packages(connectors: list[Connector]) -> Iterator[str]:
    version = _spark_version()
    for connector in connectors:
        package = format_package(connector.format, version)
        if package is not None:
            yield package
        database = database_of(str(connector.options.get("url", "")))
        if connector.format.lower() == "jdbc" and database is not None and database in DRIVERS:
            yield DRIVERS[database]


def _spark_version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "VERSION"


def _package_finding(package: str, configuration: Mapping[str, str]) -> Finding:
    """Where a package comes from: a jar that is there, a download that was made, a download to come, or nowhere."""
    group, artifact, _ = package.split(":")
    check = f"connector {artifact}"
    jar = next((jar for jar in _jars(configuration) if Path(jar).name.startswith(f"{artifact}-")), None)
    if jar is not None and "://" not in jar and not Path(jar).exists():
        return problem(check, f"{jar} of spark.jars does not exist", "correct the path")
    if jar is not None:
        return fine(check, f"{jar} is on Spark's path")
    named = [each.strip() for each in configuration.get(PACKAGES_SETTING, "").split(",")]
    chosen = next((each for each in named if each.startswith(f"{group}:{artifact}:")), None)
    if chosen is None:
        return problem(
            check,
            f"{group}:{artifact} is neither in {PACKAGES_SETTING} nor in spark.jars",
            f"set {PACKAGES_SETTING} to {package}, in the section engine.spark of the pipeline file or in "
            "spark-defaults.conf",
        )
    if _is_downloaded(*chosen.split(":")):
        return fine(check, f"{chosen} was downloaded already")
    return warning(
        check,
        f"Spark downloads {chosen} from Maven Central when it starts",
        "start it once where Maven Central can be reached, or put the jars into spark.jars",
    )


def _jars(configuration: Mapping[str, str]) -> Iterator[str]:
    """The jars on Spark's path: those of its settings, and those in its own directory."""
    for setting, separator in JARS_SETTINGS.items():
        given = configuration.get(setting, "").split(separator)
        yield from (jar.strip().removeprefix("file://") for jar in given if jar.strip())
    spec = importlib.util.find_spec("pyspark")
    homes = [*(spec.submodule_search_locations or () if spec else ()), os.environ.get("SPARK_HOME")]
    for home in filter(None, homes):
        yield from map(str, Path(home).glob("jars/*.jar"))


def _is_downloaded(group: str, artifact: str, version: str) -> bool:
    """Whether a jar is among the downloads of Ivy or Maven."""
    home = Path.home()
    in_maven = Path(*group.split("."), artifact, version, f"{artifact}-{version}.jar")
    names = (
        f"{group}_{artifact}-{version}.jar",
        f"{group}/{artifact}/jars/{artifact}-{version}.jar",
        in_maven,
    )
    return any((home / place / name).exists() for place in DOWNLOADS for name in names)


def _spark_configuration(pipeline: Pipeline) -> dict[str, str]:
    """Spark's settings: those of spark-defaults.conf, overridden by those of the pipeline file."""
    settings: dict[str, str] = {}
    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    file = Path(directory, "spark-defaults.conf")
    if file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if name and not name.startswith("#"):
                settings[name] = value.strip()
    return settings | {name: str(value) for name, value in pipeline.engine.get("spark", {}).items()}


def _delta_findings(connectors: list[Connector]) -> Iterator[Finding]:
    """The library for tables of Delta Lake, and whether each table can be opened."""
    if not connectors:
        return
    check = "connector deltalake"
    try:
        yield fine(check, f"deltalake {metadata.version('deltalake')} is installed")
    except metadata.PackageNotFoundError:
        yield problem(check, "tables of Delta Lake need the package deltalake", install_command("deltalake"))
        return
    for connector in connectors:
        yield _table_finding(connector)


def _table_finding(connector: Connector) -> Finding:
    """Whether a table of Delta Lake can be opened; a sink makes one that is not there."""
    check = f"table of {connector.place}"
    is_sink = "sinks[" in connector.place
    known = DELTA_SINK_OPTIONS if is_sink else (*DELTA_STREAM_OPTIONS, VERSION_AS_OF)
    properties = {name: value for name, value in connector.options.items() if not is_table_property(name)}
    try:
        location, _ = DeltaLocation.of(connector.path, properties, known)
        if is_sink and not location.exists():
            return fine(check, f"{location.path} is made when the first results are there")
        return fine(check, f"{location.path} is at version {location.open().version()}")
    except (SettingError, StateError) as error:
        return problem(
            check, without_secrets(str(error)), "correct the path or the options of the object store"
        )


def _secret_findings(connector: Connector) -> Iterator[Finding]:
    try:
        with_secrets(connector.options)
    except SettingError as error:
        yield problem(
            f"secrets of {connector.place}",
            without_secrets(str(error)),
            "set the variable or create the file for the user that runs the pipeline",
        )
