"""The tutorial notebook runs, and its stored outputs are what it shows today."""

from __future__ import annotations

import copy

import nbformat
import pytest

from tests.notebook.execution import VARIES, executed, read_notebook, shown


@pytest.mark.any_worker
def test_the_stored_outputs_are_those_of_a_fresh_run() -> None:
    stored = read_notebook()
    fresh = executed(copy.deepcopy(stored))
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        assert shown(after) == shown(before), f"run `make notebook`:\n{before.source}"


def test_every_code_cell_was_executed_in_order() -> None:
    notebook = read_notebook()
    nbformat.validate(notebook)
    numbers = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_charts_are_stored_and_nothing_is_a_script() -> None:
    texts = [text for cell in read_notebook().cells for kind, text in shown(cell) if kind == "text/html"]
    assert sum("<svg" in text for text in texts) >= 3
    assert not any("<script" in text for text in texts)


def test_few_cells_vary() -> None:
    varying = [cell for cell in read_notebook().cells if VARIES in cell.metadata.get("tags", ())]
    assert 0 < len(varying) <= 3
