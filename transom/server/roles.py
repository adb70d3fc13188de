"""Roles of clients, and the tokens that grant them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from transom.api.errors import RoleError
from transom.errors import SettingError

SHORTEST_TOKEN = 16  # characters
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Role(StrEnum):
    """What a client may do; each role includes those before it."""

    READ = "read"
    REGISTER = "register"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do what another one may.

        >>> Role.ADMIN.includes(Role.READ), Role.READ.includes(Role.REGISTER)
        (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class AccessToken:
    """A secret that a client sends, the name under which the server counts the client's requests, and its role."""

    name: str
    secret: str = field(repr=False)
    role: Role = Role.ADMIN

    def __post_init__(self) -> None:
        if TOKEN_NAME.fullmatch(self.name) is None:
            raise SettingError(
                f"not a token's name: {self.name[:64]!r}; use up to 64 letters, digits, and any of _.-"
            )
        if len(self.secret) < SHORTEST_TOKEN:
            raise SettingError(f"a token has at least {SHORTEST_TOKEN} characters")
        if not (self.secret.isascii() and self.secret.isprintable()):
            raise SettingError("a token consists of printable ASCII characters")


@dataclass(frozen=True)
class ApiClient:
    """The sender of a request, as its token names it."""

    name: str
    role: Role


def check_role(client: ApiClient, needed: Role) -> None:
    """Raise if a client's role does not include another one.

    >>> check_role(ApiClient("grafana", Role.READ), Role.REGISTER)
    Traceback (most recent call last):
    transom.api.errors.RoleError: the token grafana has the role read; this needs the role register
    """
    if not client.role.includes(needed):
        raise RoleError(f"the token {client.name} has the role {client.role}; this needs the role {needed}")


LOCAL_CLIENT = ApiClient("local", Role.ADMIN)  # every client of a server without tokens
CLIENT_KEY = "transom.client"  # of the ASGI scope: the client, or None without a valid token
