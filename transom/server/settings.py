"""The settings of a server: its address, its token and its limits."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from transom.api.conventions import TOKEN_VARIABLE
from transom.errors import SettingError
from transom.server.limits import ServiceLimits

SHORTEST_TOKEN = 16  # characters
LIMIT_NAMES = tuple(each.name for each in fields(ServiceLimits))


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens, what it requires of clients, and what it grants them.

    `hosts` are further host names that lead to the server, such as a proxy's. `metrics_queries` is the number
    of queries that have metrics of their own.
    """

    host: str = "127.0.0.1"
    port: int = 8710  # 0: any free port
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    dashboard: bool = True
    metrics_queries: int = 10_000
    limits: ServiceLimits = field(default_factory=ServiceLimits)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise SettingError(f"a token has at least {SHORTEST_TOKEN} characters")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SettingError("a token consists of printable ASCII characters")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def checked(self) -> ServerSettings:
        """These settings; raise if other machines could use the server without a token."""
        if not self.loopback and self.token is None:
            raise SettingError(
                f"other machines can reach {self.host}, so the server needs a token: put one into a file "
                f"(--token-file) or into {TOKEN_VARIABLE}, or generate one with --generate-token"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's loopback address.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def server_settings(
    section: Mapping[str, Any], options: Mapping[str, Any], generate_token: bool = False
) -> ServerSettings:
    """Settings from a pipeline's `server` section; options of the command line override it."""
    values = dict(section) | {name: value for name, value in options.items() if value is not None}
    limits = replace(ServiceLimits(), **{name: values.pop(name) for name in LIMIT_NAMES if name in values})
    file = values.pop("token_file", None)
    token = secrets.token_urlsafe(32) if generate_token else _read_token(file)
    values["hosts"] = tuple(values.get("hosts", ()))
    return ServerSettings(**values, token=token, limits=limits).checked()


def _read_token(file: str | None) -> str | None:
    """The token from a file or the environment; never from the command line, which other users can see."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"can't read the token file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"the token file {file} is not text") from None
