"""The extras in pyproject.toml are those that errors name, and the packages of each are imported only where needed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from transom.errors import MissingPackage
from transom.extras import EXTRA_OF, extra_needed, install_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Modules whose names differ from their packages'; py4j comes with pyspark.
MODULES = {"prometheus-client": "prometheus_client"}
# Other packages bring a part of its modules, so that errors about traces name the extra themselves.
NAMED_ELSEWHERE = {"otel"}
WITHOUT = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
exec(sys.argv[2])
"""
# What each installation can import, by the extras that it has.
IMPORTS = [
    ((), "import transom, transom.runtime.engine, transom.backends.local.backend, transom.cli.doctor.report"),
    (("client",), "import transom; transom.connect; import transom.cli.remote_commands"),
    (("client", "server"), "import transom; transom.serving; import transom.dashboard.routes"),
    (("spark",), "import transom.backends.spark.backend"),
]


def packages(extra: str) -> set[str]:
    """The modules of an extra's packages, without those of the extras that it includes."""
    names = {re.split(r"[\[<>=]", each)[0] for each in PROJECT["optional-dependencies"][extra]}
    return {MODULES.get(name, name) for name in names - {"transom"}}


def test_every_package_of_an_extra_has_its_extra_in_errors() -> None:
    named = PROJECT["optional-dependencies"].keys() - NAMED_ELSEWHERE
    extras = {module: extra for extra in named for module in packages(extra)}
    assert {**extras, "py4j": "spark"} == EXTRA_OF


def test_every_package_of_an_extra_is_pinned() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").casefold().replace("_", "-")
    named = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=]", each)[0].casefold() for each in named} - {"transom"}
    assert [name for name in sorted(names) if f"\n{name}==" not in lock] == []


@pytest.mark.parametrize(
    ("extras", "code"), IMPORTS, ids=[", ".join(extras) or "no extra" for extras, _ in IMPORTS]
)
def test_an_installation_imports_only_packages_of_its_extras(extras: tuple[str, ...], code: str) -> None:
    missing = ",".join(module for module, extra in EXTRA_OF.items() if extra not in extras)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [
        (
            "pyspark",
            "import transom; transom.Engine()",
            "pip install 'transom[spark]'; Engine(backend='local')",
        ),
        ("httpx", "import transom; transom.connect", "transom.connect needs the package httpx"),
        ("fastapi", "import transom; transom.serving", "transom.serving needs the package fastapi"),
        ("httpx", "from transom.cli.main import main; main(['ps'])", "pip install 'transom[client]'"),
    ],
    ids=["no pyspark", "no httpx", "no fastapi", "a command without httpx"],
)
def test_an_error_names_the_extra_to_install(missing: str, code: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_a_missing_package_is_an_import_error() -> None:
    with pytest.raises(ImportError), extra_needed("this"):
        raise ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")
    assert issubclass(MissingPackage, ImportError) and install_command("pyspark").endswith("'transom[spark]'")


def test_a_module_of_no_extra_is_reported_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="typo"), extra_needed("this"):
        raise ModuleNotFoundError("No module named 'typo'", name="typo")
