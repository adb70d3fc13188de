"""What a user of the dashboard may change, by the role of the token that they signed in with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from transom.api.records import CheckedQuery, EditedQuery, QueryStatus
from transom.elements import Matcher
from transom.server.roles import ApiClient, Role, check_role
from transom.server.service import Service


class Actions:
    """The operations of the service beyond reading, for one client; each checks the client's role.

    Hidden buttons are no protection: the browser can send any event that a view handles.
    """

    def __init__(self, service: Service, client: ApiClient):
        self._service, self._client = service, client

    @property
    def allowed(self) -> bool:
        """Whether the client may do more than read."""
        return self._client.role.includes(Role.REGISTER)

    def _checked(self) -> Service:
        check_role(self._client, Role.REGISTER)
        return self._service

    def check(self, sql: str) -> CheckedQuery:
        """Describe a query without registering it."""
        return self._checked().check(sql)

    def register(self, sql: str, name: str | None) -> QueryStatus:
        """Register a query."""
        return self._checked().register(sql, name)

    def preview(self, sql: str) -> str:
        """Begin a preview; returns its name."""
        return self._checked().preview(sql)

    def end_preview(self, name: str) -> None:
        """End a preview."""
        self._checked().end_preview(name)

    def prod(self, name: str) -> pa.Table:
        """Early results of a query's open windows."""
        return self._checked().prod(name)

    def tune(self, name: str, aggressiveness: float | None) -> None:
        """Set how early a query emits results."""
        self._checked().tune(name, aggressiveness)

    def edit(self, name: str, sql: str, dry_run: bool = False) -> EditedQuery:
        """Give a query another text, or only say what would become of its open windows."""
        return self._checked().edit(name, sql, dry_run)

    def change(
        self, name: str, to: str, description: str, tags: list[str], units: Mapping[str, str]
    ) -> QueryStatus:
        """Rename, describe and tag a query, and set the units of its values."""
        return self._checked().change(name, to, description, tags, None, units)

    def pause(self, name: str) -> None:
        """Let a query take no part in batches until it is resumed."""
        self._checked().pause(name)

    def resume(self, name: str) -> None:
        """Let a suspended or paused query take part in batches again."""
        self._checked().resume(name)

    def silence(self, matchers: Sequence[Matcher], duration: str) -> None:
        """Silence the alerts that all matchers match."""
        self._checked().alerts.silence(matchers, duration, None, self._client.name, "from the dashboard")

    def unsilence(self, id: str) -> None:
        """End a silence."""
        self._checked().alerts.unsilence(id)

    def drop(self, name: str) -> None:
        """Drop a query."""
        self._checked().drop(name)
