"""Tools for tests."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest

from transom.errors import SettingError
from transom.testing import expensive


def test_expensive_takes_its_time_and_changes_nothing() -> None:
    work, began = expensive(0.01), thread_time()
    assert [work(value) for value in (1, None, "x")] == [1, None, "x"]
    assert thread_time() - began >= 0.03


@pytest.mark.parametrize("seconds", [-1, "1 ms", float("nan"), True])
def test_what_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(SettingError, match="expensive takes seconds"):
        expensive(seconds)


@pytest.mark.xdist_group("grouped")
def test_the_installed_pytest_and_its_plugin_keep_groups_in_one_worker(
    request: pytest.FixtureRequest,
) -> None:
    """The plugin changes a private attribute of pytest's, which other versions call something else."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@grouped")
