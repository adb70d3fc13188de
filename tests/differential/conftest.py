"""The seed of the random cases: Hypothesis's own, so that one option repeats a whole run."""

from __future__ import annotations

import pytest


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.option.hypothesis_seed)
