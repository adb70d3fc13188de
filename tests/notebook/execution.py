"""Executes the tutorial notebook in a kernel; `make notebook` stores the outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
SECONDS = 120  # for a cell
VARIES = "varies"  # the tag of cells whose output has readings of a clock


def read_notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: Any) -> Any:
    """The notebook with the outputs of a fresh kernel; an error in a cell is raised."""
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=_place())
    done = client.execute()
    for cell in done.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
    done.metadata.pop("language_info", None)  # the version of Python
    return done


def _place() -> dict[str, Any]:
    return {"metadata": {"path": str(NOTEBOOK.parent)}}


def shown(cell: Any) -> list[tuple[str, str]]:
    """What a cell shows: the kind and the text of each output. Where it varies, numbers are left out."""
    parts: list[tuple[str, str]] = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            parts.append((output.name, output.text))
        else:
            parts += [(kind, str(data)) for kind, data in sorted(output.get("data", {}).items())]
    if VARIES in cell.metadata.get("tags", ()):
        return [(kind, re.sub(r"[-+.,\d:]+(e[-+.,\d:]+)?", "0", text)) for kind, text in parts]
    return parts


if __name__ == "__main__":
    nbformat.write(executed(read_notebook()), NOTEBOOK)
    print(f"{NOTEBOOK.name} is executed")
