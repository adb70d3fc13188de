"""Rate limits per client."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, IPv6Network

MOST_CLIENTS = 10_000  # clients that a limiter remembers; it forgets the one that was silent longest


class RateLimiter:
    """Allows each client `rate` requests a second on average, and `burst` at once.

    It is a token bucket, kept as one number per client: when its bucket will be full again.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic):
        self.rate, self.burst, self.clock = rate, burst, clock
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request of a client and return 0, or return the seconds until its next one is allowed.

        >>> limiter = RateLimiter(rate=2, burst=1, clock=lambda: 100.0)
        >>> limiter.wait("ops"), limiter.wait("ops"), limiter.wait("grafana")
        (0.0, 0.5, 0.0)
        """
        now = self.clock()
        full_at = max(self._full_at.get(client, now), now)
        seconds = full_at - now - (self.burst - 1) / self.rate
        if seconds > 1e-9:
            return seconds
        self._full_at[client] = full_at + 1 / self.rate
        self._full_at.move_to_end(client)
        if len(self._full_at) > MOST_CLIENTS:
            self._full_at.popitem(last=False)
        return 0.0


def address_group(address: str) -> str:
    """The address under which a client is counted: of IPv6 the network, since a client has all of its addresses.

    >>> address_group("10.0.0.1"), address_group("2001:db8:1:2:a:b:c:d"), address_group("")
    ('10.0.0.1', '2001:db8:1:2::/64', '')
    """
    if ":" not in address:
        return address
    try:
        return str(IPv6Network((IPv6Address(address.partition("%")[0]), 64), strict=False))
    except ValueError:
        return address


def retry_after(seconds: float) -> Mapping[str, str]:
    """The header that tells a client when to send its request again."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
