"""A public name is defined in one module of the package, so that a search for it finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import transom

PACKAGE = Path(transom.__file__).parent

# Names that several modules define, with the reason.
ALLOWED = {
    "log": "each module that logs looks up the same logger, by Python's convention",
}


def public_names(tree: ast.Module) -> Iterator[str]:
    """The classes, functions, constants and type aliases at the top level of a module."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [
                    part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)
                ]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def modules_by_name() -> dict[str, set[str]]:
    modules = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for name in public_names(ast.parse(path.read_text(encoding="utf-8"))):
            modules[name].add(path.relative_to(PACKAGE).as_posix())
    return modules


def test_the_names_of_a_module_are_its_classes_functions_constants_and_aliases():
    text = (
        "LOW, HIGH = 1, 2\nMask = list[bool]\nlimit: int = 3\n_hidden = 4\nclass A: x = 1\ndef f(): y = 2\n"
    )
    assert sorted(public_names(ast.parse(text))) == ["A", "HIGH", "LOW", "Mask", "f", "limit"]


def test_a_public_name_is_defined_in_one_module():
    repeated = {name: sorted(modules) for name, modules in modules_by_name().items() if len(modules) > 1}
    assert {name: modules for name, modules in repeated.items() if name not in ALLOWED} == {}


def test_every_allowed_repetition_exists():
    modules = modules_by_name()
    assert [name for name in ALLOWED if len(modules[name]) < 2] == []
