"""The documentation is true: its examples run, and its tables match the code."""

from __future__ import annotations

import inspect
import io
import re
import shlex
import tempfile
import tomllib
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import transom
from tests.engine_factory import EngineFactory
from transom.cli.main import app
from transom.cli.settings_table import KIND_TEXTS, SETTING_SECTIONS, markdown

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FENCE = re.compile(r"^```(python|sh)\n((?:(?!```).*\n)*)```\n```text\n((?:(?!```).*\n)*)```$", re.MULTILINE)

ERRORS_OF_SERVERS = [
    ("transom.api.errors", "NotFound"),
    ("transom.api.errors", "LimitError"),
    ("transom.client.connection_errors", "ServerError"),
    ("transom.client.connection_errors", "Unreachable"),
    ("transom.client.connection_errors", "Refused"),
]


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples write is deleted with the files of the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def examples(path: Path) -> list[tuple[str, str, str]]:
    """The examples in a document that show their output: language, code, output."""
    return [(m[1], m[2], m[3]) for m in FENCE.finditer(path.read_text(encoding="utf-8"))]


def run_python(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "an example", "exec"), names)
    return out.getvalue()


def run_shell(line: str) -> str:
    words = shlex.split(line.replace("\\\n", " "))
    assert words[0] == "transom"
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/examples.md",
        "docs/tutorial.md",
        "docs/on-demand.md",
        "docs/promising-tuples.md",
        "docs/alerts.md",
    ],
)
def test_examples_print_what_the_document_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for language, code, expected in examples(ROOT / name):
        printed = run_python(code, names) if language == "python" else run_shell(code)
        assert printed == expected, code


def test_examples_of_input_print_what_the_document_shows() -> None:
    names: dict[str, Any] = {}
    for _, code, expected in examples(ROOT / "docs/input.md"):
        assert run_python(code, names) == expected, code


@pytest.mark.backends("local", "spark")
def test_examples_of_lakes_print_what_the_document_shows(make_engine: EngineFactory) -> None:
    names: dict[str, Any] = {"make_engine": make_engine}
    shown = examples(ROOT / "docs/lake.md")
    assert len(shown) == 6
    for _, code, expected in shown:
        assert (
            run_python(code.replace('transom.Engine(backend="local")', "make_engine()"), names) == expected
        ), code


def test_examples_of_history_print_what_the_document_shows() -> None:
    names: dict[str, Any] = {}
    for _, code, expected in examples(ROOT / "docs/history.md"):
        assert run_python(code, names) == expected, code


def test_examples_of_early_decisions_print_what_the_document_shows() -> None:
    shown = examples(ROOT / "docs/early-decisions.md")
    assert len(shown) == 1
    for _, code, expected in shown:
        assert run_python(code, {}) == expected, code


def test_examples_of_watermarks_print_what_the_document_shows() -> None:
    names: dict[str, Any] = {}
    for _, code, expected in examples(ROOT / "docs/watermarks.md"):
        assert run_python(code, names) == expected, code


def test_examples_of_the_sql_reference_print_what_the_document_shows() -> None:
    for _, code, expected in examples(ROOT / "docs/reference/sql.md"):
        assert run_python(code, {}) == expected, code


def test_the_documents_show_the_examples() -> None:
    documents = [ROOT / "README.md", ROOT / "docs/examples.md"]
    shown = [code for path in documents for language, code, _ in examples(path) if language == "python"]
    names = ["quickstart.py", "window_sql.py", "early.py", "on_demand.py", "promising.py"]
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(names)
    for code, name in zip(shown, names, strict=True):
        source = (ROOT / "examples" / name).read_text()
        assert code == source[source.index("import transom") :]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_reference(command: str) -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    section = re.search(rf"^## transom {command}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    shown = set(re.findall(r"--[a-z][a-z-]*", section[1]))
    have = {
        name
        for parameter in COMMANDS[command].params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--") and name != "--help"
    }
    assert have - shown == set(), "not in the reference"
    rows = set(
        re.findall(r"--[a-z][a-z-]*", "\n".join(re.findall(r"^\| (.*?) \|", section[1], re.MULTILINE)))
    )
    assert rows - have == set(), "in the reference, but not in the command"


def test_the_settings_are_in_the_reference() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    for name, section in SETTING_SECTIONS.items():
        part = text[text.index(f"## {name}\n") :]
        assert markdown(section) in part, name
    for kind, takes in KIND_TEXTS.items():
        assert f"| {kind} | {takes} |" in text


def test_the_python_interface_is_in_the_reference() -> None:
    from transom.client.connection import Server
    from transom.client.remote_query import RemoteQuery
    from transom.runtime.engine import Engine
    from transom.runtime.handles import Feed, QueryHandle

    text = (ROOT / "docs/reference/python.md").read_text()
    owners: dict[type, tuple[str, ...]] = {
        Engine: ("engine",),
        QueryHandle: ("query",),
        Feed: ("feed",),
        Server: ("server",),
        RemoteQuery: ("remote", "query"),  # what it has like a handle is told there
    }
    for owner, words in owners.items():
        own = (vars(part) for part in owner.__mro__ if part is not object)
        public = [name for names in own for name in names if not name.startswith("_")]
        missing = [name for name in public if not any(f"`{word}.{name}" in text for word in words)]
        assert missing == [], owner.__name__
    for name in inspect.signature(Engine.__init__).parameters:
        assert name == "self" or f"`{name}`" in text, name
    for name in inspect.signature(Engine.stream).parameters:
        assert name == "self" or f"`{name}`" in text, name


def documented_classes() -> list[type]:
    from transom.client.connection import Server
    from transom.client.remote_alerts import RemoteAlerts
    from transom.client.remote_query import RemoteQuery
    from transom.runtime.alert_handles import AlertHandle, Alerting
    from transom.runtime.handles import Feed, QueryHandle

    return [transom.Engine, QueryHandle, Feed, Alerting, AlertHandle, Server, RemoteQuery, RemoteAlerts]


def test_the_page_of_docstrings_has_every_public_name() -> None:
    text = (ROOT / "docs/reference/docstrings.md").read_text()
    shown = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    public = {f"transom.{name}" for name in transom.__all__ if name != "__version__"}
    classes = {f"{each.__module__}.{each.__name__}" for each in documented_classes()[1:]}
    errors = {f"{module}.{name}" for module, name in ERRORS_OF_SERVERS}
    assert shown == public | classes | errors
    for name in shown:
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute).__doc__, name


@pytest.mark.parametrize("owner", documented_classes(), ids=lambda owner: owner.__name__)
def test_every_public_member_has_a_docstring(owner: type) -> None:
    members = {name: member for part in owner.__mro__[:-1] for name, member in vars(part).items()}
    bare = [name for name, member in members.items() if not name.startswith("_") and not member.__doc__]
    assert bare == []


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"^ +- .*: (\S+(?:\.md|/))$", text.partition("\nnav:\n")[2], re.MULTILINE)
    folders = tuple(target for target in listed if target.endswith("/"))
    pages = [str(page.relative_to(ROOT / "docs")) for page in DOCS[1:]]
    generated = ["changelog.md", "index.md", "security.md"]
    assert sorted(target for target in listed if target not in folders) == sorted(
        [page for page in pages if not page.startswith(folders)] + generated
    )


def test_the_version_is_the_same_everywhere_and_has_a_section_of_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == transom.__version__
    assert f'"version":"{transom.__version__}"' in (ROOT / "docs/reference/api.md").read_text()
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(transom.__version__)} \(\d{{4}}-\d\d-\d\d\)", headings[1])


@pytest.mark.parametrize("document", DOCS, ids=[str(document.relative_to(ROOT)) for document in DOCS])
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCS, ROOT / "CHANGELOG.md"], ids=lambda document: document.name)
def test_links_lead_to_headings(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", document.read_text(encoding="utf-8"))
    for target, anchor in links:
        page = document.parent / target if target else document
        assert anchor in anchors(page), f"{target}#{anchor}"
