"""The wheel, built from this tree, and fresh environments with it; `make test-wheel` runs these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("wheel")


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A directory outside of the tree, so that nothing of the tree is imported."""
    with tempfile.TemporaryDirectory(prefix="transom-wheel-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def wheel(place: Path) -> Path:
    """The wheel, built from a copy: setuptools leaves files of earlier builds in the tree, and packs them again."""
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "transom", source / "transom", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", str(place), str(source)], check=True)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(place: Path, wheel: Path) -> Callable[[str], Run]:
    """Makes a fresh environment with an extra of the wheel, and returns what runs a program of it there."""

    def make(extra: str) -> Run:
        directory = place / extra
        venv.create(directory)  # pip of this environment installs into it
        bin = directory / "bin"
        pip = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "--quiet"]
        lock = ["--constraint", str(ROOT / "requirements.lock")]
        subprocess.run(
            [*pip, "--disable-pip-version-check", "--no-compile", *lock, f"{wheel}[{extra}]"], check=True
        )
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

        def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(bin / program), *arguments],
                cwd=place,
                env=variables,
                capture_output=True,
                text=True,
                timeout=120,
            )

        return run

    return make
