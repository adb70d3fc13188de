"""The requests of a webhook: their bodies, their signature, and how they are sent."""

from __future__ import annotations

import hashlib
import hmac
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import IO, Any

from transom.alerts.events import AlertEvent
from transom.api.value_text import value_to_text
from transom.backends.time_limit import interrupting
from transom.errors import SettingError
from transom.version import __version__

SIGNATURE_HEADER = "X-Transom-Signature"
WEBHOOK_FORMATS = ("transom", "alertmanager")
_NEVER = "0001-01-01T00:00:00Z"  # the end of an alert that fires, as Alertmanager writes it


class DeliveryError(Exception):
    """A request that was not accepted. `is_final` says that a repetition would not be accepted either."""

    def __init__(self, reason: str, is_final: bool = False, retry_after: float | None = None):
        super().__init__(reason)
        self.is_final, self.retry_after = is_final, retry_after


def request_body(format: str, events: Sequence[AlertEvent], receiver: str) -> bytes:
    """The JSON body of a request with some events."""
    if format == "alertmanager":
        return json.dumps(_alertmanager(events, receiver), ensure_ascii=False).encode("utf-8", "replace")
    body = {"version": 1, "receiver": receiver, "events": [event.to_json() for event in events]}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _alertmanager(events: Sequence[AlertEvent], receiver: str) -> dict[str, Any]:
    """The body that Alertmanager sends to a webhook, version 4."""
    alerts = [_of_alertmanager(event) for event in events]
    is_firing = any(alert["status"] == "firing" for alert in alerts)
    common = _common([alert["labels"] for alert in alerts])
    return {
        "version": "4",
        "groupKey": "{}:{" + ", ".join(f'{name}="{value}"' for name, value in sorted(common.items())) + "}",
        "truncatedAlerts": 0,
        "status": "firing" if is_firing else "resolved",
        "receiver": receiver,
        "groupLabels": {"alertname": common["alertname"]} if "alertname" in common else {},
        "commonLabels": common,
        "commonAnnotations": _common([alert["annotations"] for alert in alerts]),
        "externalURL": "",
        "alerts": alerts,
    }


def _of_alertmanager(event: AlertEvent) -> dict[str, Any]:
    is_firing = event.state not in ("resolved", "withdrawn")
    named = {str(name): value_to_text(value) for name, value in event.group.items()}
    return {
        "status": "firing" if is_firing else "resolved",
        "labels": {**dict(event.labels), **named, "alertname": event.alert},
        "annotations": dict(event.annotations),
        "startsAt": str(event.started),
        "endsAt": _NEVER if is_firing else str(event.window_end),
        "generatorURL": "",
        "fingerprint": event.id,
    }


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first = texts[0] if texts else {}
    return {name: text for name, text in first.items() if all(each.get(name) == text for each in texts)}


def signature(secret: str, body: bytes) -> str:
    """The value of the signature header: HMAC-SHA256 of the body.

    >>> signature("secret", b"{}")[:20]
    'sha256=77325902caca8'
    """
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the events to a server that nobody named."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def check_url(url: str) -> str:
    """The URL; raise if it is not one of HTTP."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("http", "https") or not rest.strip("/"):
        raise SettingError("a webhook needs a URL that begins with http:// or https://")
    return url


def send(url: str, body: bytes, headers: Mapping[str, str], secret: str | None, timeout: float) -> None:
    """Send a request and wait for the answer; DeliveryError if it is not accepted."""
    sent = {"Content-Type": "application/json", "User-Agent": f"transom/{__version__}", **headers}
    if secret is not None:
        sent[SIGNATURE_HEADER] = signature(secret, body)
    request = urllib.request.Request(url, data=body, headers=sent, method="POST")
    try:
        # The socket's timeout is for each part of the answer, and a server can send one byte after the other.
        with interrupting(timeout), _OPENER.open(request, timeout=timeout) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        # The server understood the request and will not take it; other errors may pass.
        is_final = 400 <= error.code < 500 and error.code not in (401, 403, 404, 408, 425, 429)
        wait = error.headers.get("Retry-After", "") if error.headers is not None else ""
        retry_after = float(wait) if wait.isdecimal() else None
        raise DeliveryError(f"HTTP status {error.code}", is_final, retry_after) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DeliveryError(_failure_text(error, reason)) from None
    except Exception as error:  # http.client raises its own for an answer that is no HTTP
        raise DeliveryError(_failure_text(error, error)) from None


def _failure_text(error: Exception, reason: object) -> str:
    """An error in one line: it may have what the server sent."""
    text = f"{type(error).__name__}: {reason}"[:300]
    return "".join(character if character.isprintable() else " " for character in text)
