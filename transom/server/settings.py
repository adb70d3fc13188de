"""How a server is reached, by whom, and what it grants."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from transom.errors import SettingError
from transom.server.limits import ServiceLimits

TOKEN = "TRANSOM_TOKEN"  # the environment's name for it
SHORTEST = 16  # characters of a token
LIMITS = tuple(each.name for each in fields(ServiceLimits))


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens, what it asks of those who come, and what it grants them.

    `hosts` are names besides its own by which it is reached, such as a proxy's. `metrics_queries` is how
    many queries have series of their own at /metrics.
    """

    host: str = "127.0.0.1"
    port: int = 8710  # 0: any that is free
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    dashboard: bool = True
    metrics_queries: int = 10_000
    limits: ServiceLimits = field(default_factory=ServiceLimits)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST:
            raise SettingError(f"a token has at least {SHORTEST} characters")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SettingError("a token is of printable ASCII characters")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def checked(self) -> ServerSettings:
        """These settings, if nobody from elsewhere can come in without a token."""
        if not self.loopback and self.token is None:
            raise SettingError(
                f"{self.host} can be reached from other machines: a token is needed there. Put one into a "
                f"file (--token-file) or into {TOKEN}, or let --generate-token make one"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.casefold() == "localhost"


def server_settings(
    section: Mapping[str, Any], given: Mapping[str, Any], generate: bool = False
) -> ServerSettings:
    """Settings from a pipeline's `server` section and the command line, which goes before it."""
    known = dict(section) | {name: value for name, value in given.items() if value is not None}
    limits = replace(ServiceLimits(), **{name: known.pop(name) for name in LIMITS if name in known})
    file = known.pop("token_file", None)
    token = secrets.token_urlsafe(32) if generate else _token(file)
    known["hosts"] = tuple(known.get("hosts", ()))
    return ServerSettings(**known, token=token, limits=limits).checked()


def _token(file: str | None) -> str | None:
    """The token of a file or of the environment; never of the command line, where others see it."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"the token file {file} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"the token file {file} is not text") from None
