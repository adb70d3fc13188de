"""The OpenAPI description is kept: whatever is sent, there is no server error, and answers are as described.

`make test` tries a few cases of each route, `make test-api` many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.engine_factory import EngineFactory
from tests.server.server_helpers import Backend, backend, fill, served_with
from transom.server.app import make_app
from transom.server.service import Service
from transom.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("TRANSOM_API_EXAMPLES", "3"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    """The description, which needs no engine."""
    return make_app(Service.__new__(Service), ServerSettings()).openapi()


@pytest.fixture(scope="module")
def described(description: dict[str, Any]) -> BaseSchema:
    """The description, to draw requests from."""
    return schemathesis.openapi.from_dict(description)


# Every worker collects this file and one runs it: cases, which take seconds to draw, are drawn in the test.
# A tail never ends, and the health routes say 503 by design.
schema = schemathesis.pytest.from_fixture("described").exclude(path_regex="/tail$|^/(healthz|readyz)")


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backend(
        make_engine, tmp_path_factory.mktemp("described"), served_with(queries=40, previews=5)
    ) as made:
        fill(made)
        yield made


@pytest.mark.usefixtures("back")
@pytest.mark.timeout(3_600)  # for all routes
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)
@schema.parametrize()
def test_answers_are_as_described(case: schemathesis.Case, back: Backend) -> None:
    aim(case)
    case.call_and_validate(base_url=back.served.url, checks=CHECKS, timeout=60)


def aim(case: schemathesis.Case) -> None:
    """Names that exist, in most cases: what is made up is answered with 404 and tests little."""
    known = {"name": "early", "stream": "bids"}
    for key, value in known.items():
        given = (case.path_parameters or {}).get(key)
        if isinstance(given, str) and len(given) % 4 and case.method != "DELETE":
            case.path_parameters[key] = value
    if isinstance(case.query, dict) and "wait" in case.query:
        case.query["wait"] = 0
    elif case.path.endswith("/rows"):  # no batch runs, so that a push would wait for half a minute
        case.query = {**(case.query or {}), "wait": 0}


def test_every_route_is_in_the_reference(description: dict[str, Any]) -> None:
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^### (GET|POST|PUT|PATCH|DELETE) (\S+)$", text, re.MULTILINE))
    have = {(method.upper(), path) for path, item in description["paths"].items() for method in item}
    assert shown == have


def test_every_answer_and_field_is_described(description: dict[str, Any]) -> None:
    for path, item in description["paths"].items():
        for method, route in item.items():
            assert route.get("description"), (method, path)
            assert route.get("tags"), (method, path)
    for name, one in description["components"]["schemas"].items():
        assert one.get("description") or "enum" in one, name
