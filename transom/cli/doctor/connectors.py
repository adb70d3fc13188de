"""Checks of connectors: where the package of each format comes from, secrets, and whether brokers answer."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from transom.backends.connector_packages import DRIVERS, database_of, format_package
from transom.backends.secrets import with_secrets, without_secrets
from transom.cli.doctor.finding import Finding, fine, problem, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.cli.pipeline import Pipeline, Settings
from transom.errors import SettingError

PACKAGES_SETTING = "spark.jars.packages"
JARS_SETTINGS = {"spark.jars": ",", "spark.driver.extraClassPath": os.pathsep}  # with what separates the jars
BROKER_SECONDS = 2.0
# Where Spark and Maven keep what they have downloaded, below the home directory.
DOWNLOADS = (".ivy2.5.2/jars", ".ivy2.5.2/cache", ".ivy2/jars", ".ivy2/cache", ".m2/repository")


@dataclass(frozen=True)
class Connector:
    """A stream, table or sink that needs a package or a secret."""

    place: str  # in the pipeline file
    format: str
    options: Mapping[str, Any]


def check_connectors(subject: DoctorSubject) -> Iterator[Finding]:
    """The packages of the pipeline's formats, its secrets, and its brokers."""
    if subject.pipeline is None:
        return
    connectors = list(_connectors(subject.pipeline))
    configuration = _spark_configuration(subject.pipeline)
    packages = dict.fromkeys(_needed_packages(connectors))
    for package in packages if subject.needs_spark else ():
        yield _package_finding(package, configuration)
    for connector in connectors:
        yield from _secret_findings(connector)
    brokers = {broker: None for connector in connectors for broker in _brokers(connector)}
    for broker in brokers:
        yield _broker_finding(broker)


def _connectors(pipeline: Pipeline) -> Iterator[Connector]:
    sources: dict[str, Settings] = {
        **{f"streams.{name}": each for name, each in pipeline.streams.items()},
        **{f"tables.{name}": each for name, each in pipeline.tables.items()},
        **{f"sinks[{at}]": each for at, each in enumerate(pipeline.sinks)},
        **{
            f"queries.{name}.sinks[{at}]": each
            for name, query in pipeline.queries.items()
            for at, each in enumerate(query.sinks)
        },
    }
    for place, settings in sources.items():
        yield Connector(place, str(settings.get("format", "")), settings.get("options", {}))
        decode = settings.get("decode")
        if decode:
            format = decode if isinstance(decode, str) else decode["format"]
            yield Connector(f"{place}.decode", format, {})


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


def _secret_findings(connector: Connector) -> Iterator[Finding]:
    try:
        with_secrets(connector.options)
    except SettingError as error:
        yield problem(
            f"secrets of {connector.place}",
            without_secrets(str(error)),
            "set the variable or create the file for the user that runs the pipeline",
        )


def _brokers(connector: Connector) -> list[str]:
    """The addresses of the brokers of Kafka."""
    if connector.format.lower() != "kafka":
        return []
    try:
        servers = with_secrets(connector.options).get("kafka.bootstrap.servers", "")
    except SettingError:
        return []  # a finding already
    return [server.strip() for server in servers.split(",") if server.strip()]


def _broker_finding(broker: str) -> Finding:
    host, _, port = broker.rpartition(":")
    check = f"broker {broker}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), BROKER_SECONDS):
            return fine(check, "it accepts connections")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return warning(
            check, f"it can't be reached from here: {reason}", "start the broker, or correct the address"
        )
