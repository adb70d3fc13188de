"""Functions that fail once, when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from transom.backends.base import Sink


class Crash(OSError):
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


def fault_at(
    patch: pytest.MonkeyPatch,
    make_engine: EngineFactory,
    step: tuple[Any, str, Callable[..., bool]],
    after: bool,
) -> Fault:
    """A fault in a step of a batch; the step of `Sink` is one of the sinks of the test's backend."""
    owner, name, when = step
    return Fault(patch, make_engine.sink_type if owner is Sink else owner, name, when, after)
