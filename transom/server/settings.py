"""The settings of a server: its address, its tokens and its limits."""

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
from transom.server.roles import AccessToken, Role

DEFAULT_TOKEN = "default"  # the name of the token that has no name
LIMIT_NAMES = tuple(each.name for each in fields(ServiceLimits))


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens, what it requires of clients, and what it grants them.

    `token` is a token with the role admin, `tokens` are further ones. `hosts` are further host names that lead
    to the server, such as a proxy's. `metrics_queries` is the number of queries that have metrics of their own.
    """

    host: str = "127.0.0.1"
    port: int = 8710  # 0: any free port
    token: str | None = field(default=None, repr=False)
    tokens: tuple[AccessToken, ...] = ()
    hosts: tuple[str, ...] = ()
    dashboard: bool = True
    metrics_queries: int = 10_000
    limits: ServiceLimits = field(default_factory=ServiceLimits)

    def __post_init__(self) -> None:
        tokens = self.access_tokens
        for values, what in (([t.name for t in tokens], "name"), ([t.secret for t in tokens], "secret")):
            if len(set(values)) < len(values):
                raise SettingError(f"two tokens have the same {what}")

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]:
        """All tokens that the server accepts."""
        return self.tokens if self.token is None else (AccessToken(DEFAULT_TOKEN, self.token), *self.tokens)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def checked(self) -> ServerSettings:
        """These settings; raise if other machines could use the server without a token."""
        if not self.loopback and not self.access_tokens:
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
    token = secrets.token_urlsafe(32) if generate_token else _default_token(file)
    values["tokens"] = tuple(map(access_token, values.get("tokens", ())))
    values["hosts"] = tuple(values.get("hosts", ()))
    return ServerSettings(**values, token=token, limits=limits).checked()


def access_token(entry: Mapping[str, Any]) -> AccessToken:
    """A token of the `tokens` setting; its secret is in a file or in the environment."""
    name, role, file, variable = entry["name"], entry["role"], entry.get("token_file"), entry.get("token_env")
    if role not in list(Role):
        raise SettingError(f"the token {name}: the role is one of {', '.join(Role)}, not {role!r}")
    if (file is None) == (variable is None):
        raise SettingError(f"the token {name}: give its token_file or its token_env")
    secret = os.environ.get(variable, "") if variable is not None else read_token(str(file))
    if not secret:
        raise SettingError(f"the token {name}: {variable or file} is empty")
    try:
        return AccessToken(name, secret, Role(role))
    except SettingError as error:
        raise SettingError(f"the token {name}: {error}") from None


def _default_token(file: str | None) -> str | None:
    """The token from a file or the environment; never from the command line, which other users can see."""
    return read_token(file) if file is not None else os.environ.get(TOKEN_VARIABLE) or None


def read_token(file: str) -> str:
    """The token in a file."""
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"can't read the token file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"the token file {file} is not text") from None
