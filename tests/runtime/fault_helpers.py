"""Functions that fail once, when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Crash(Exception):
    """What a test makes happen."""


class Fault:
    """Makes one function fail once: at its nth call, before or after it has done its work."""

    def __init__(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool], after: bool
    ):
        self.fired = False
        real = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            if self.fired or not when(*args, **options):
                return real(*args, **options)
            self.fired = True
            if after:
                real(*args, **options)
            raise Crash(name)

        patch.setattr(owner, name, wrapped)
