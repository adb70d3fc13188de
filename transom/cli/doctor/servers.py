"""Checks of the servers that a pipeline needs: whether brokers, databases and webhooks accept connections from here."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from transom.backends.connector_packages import database_of
from transom.backends.secrets import with_secrets
from transom.cli.doctor.connectors import Connector, connectors_of
from transom.cli.doctor.finding import Finding, fine, warning
from transom.cli.doctor.subject import DoctorSubject
from transom.errors import SettingError

CONNECT_SECONDS = 2.0
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433}
_JDBC_SERVERS = re.compile(r"jdbc:\w+://([^/?;]+)")
_HTTP_PORTS = {"http": 80, "https": 443}


def check_servers(subject: DoctorSubject) -> Iterator[Finding]:
    """The brokers, databases and webhooks of a pipeline."""
    if subject.pipeline is None:
        return
    servers: dict[tuple[str, str], None] = {}
    for connector in connectors_of(subject.pipeline):
        servers.update(dict.fromkeys(_servers(connector)))
    for settings in subject.pipeline.alert_sinks.values():
        servers.update(dict.fromkeys(_webhooks(settings)))
    for kind, address in servers:
        yield _connection_finding(kind, address)


def _servers(connector: Connector) -> list[tuple[str, str]]:
    """The kinds and addresses of the servers of a connector."""
    options = _values(connector.options)
    match connector.format.lower():
        case "kafka":
            brokers = options.get("kafka.bootstrap.servers", "").split(",")
            return [("broker", broker.strip()) for broker in brokers if broker.strip()]
        case "jdbc":
            return [("database", address) for address in database_addresses(options.get("url", ""))]
        case _:
            return []


def _webhooks(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The host and port of a webhook: the rest of its URL may be a secret."""
    url = _values({"url": settings.get("webhook", "")}).get("url", "")
    try:
        parts = urlsplit(url)
        port = parts.port or _HTTP_PORTS.get(parts.scheme)
    except ValueError:
        return []  # the pipeline itself refuses it
    return [("webhook", f"{_bracketed(parts.hostname)}:{port}")] if parts.hostname and port else []


def database_addresses(url: str) -> list[str]:
    """The hosts and ports in a JDBC URL; none if it has another form.

    >>> database_addresses("jdbc:postgresql://db-1,db-2:5433/shop?user=me")
    ['db-1:5432', 'db-2:5433']
    >>> database_addresses("jdbc:derby:memory:shop")
    []
    """
    found, port = _JDBC_SERVERS.match(url), DATABASE_PORTS.get(database_of(url) or "")
    if found is None or port is None:
        return []
    hosts = [host.rpartition("@")[2] for host in found[1].split(",")]
    return [host if re.search(r":\d+$", host) else f"{host}:{port}" for host in hosts]


def _values(options: Mapping[str, Any]) -> dict[str, str]:
    """The options with the values of secrets; none if a secret is not there, which is a finding already."""
    try:
        return with_secrets(options)
    except SettingError:
        return {}


def _bracketed(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else str(host)


def _connection_finding(kind: str, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    check = f"{kind} {address}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            return fine(check, "it accepts connections")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return warning(
            check, f"it can't be reached from here: {reason}", f"start the {kind}, or correct the address"
        )
