"""What no request may do: read a file, run code, or reach what the pipeline did not declare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import EngineFactory, on_spark
from tests.server.server_helpers import Backend, backend, error, fill, served_with

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SQL = [
    ("a file by its format", f"SELECT count(*) AS n FROM parquet.`/etc/passwd` {WINDOW}"),
    ("a file as text", f"SELECT max(value) AS v FROM text.`file:///etc/passwd` {WINDOW}"),
    ("a file as CSV", f"SELECT max(_c0) AS v FROM csv.`/etc/passwd` {WINDOW}"),
    ("a file in quotes", f'SELECT count(*) AS n FROM "/etc/passwd" {WINDOW}'),
    ("a file beside the stream", f"SELECT count(*) AS n FROM bids {WINDOW}, csv.`/etc/passwd` AS c"),
    (
        "a file joined",
        f"SELECT count(*) AS n FROM bids {WINDOW} JOIN text.`/etc/passwd` t ON t.value = bids.site",
    ),
    ("a table function", f"SELECT count(*) AS n FROM read_files('/etc/passwd') {WINDOW}"),
    ("a range", f"SELECT count(*) AS n FROM range(10) {WINDOW}"),
    ("a table that Spark has", f"SELECT count(*) AS n FROM secrets {WINDOW}"),
    (
        "a table that Spark has, joined",
        f"SELECT count(*) AS n FROM bids {WINDOW}, secrets WHERE bids.site = secrets.site",
    ),
    ("a table of the catalog", f"SELECT count(*) AS n FROM spark_catalog.default.secrets {WINDOW}"),
    ("a subquery", f"SELECT max((SELECT max(site) FROM secrets)) AS s FROM bids {WINDOW}"),
    (
        "a subquery in a predicate",
        f"SELECT count(*) AS n FROM bids {WINDOW} WHERE site IN (SELECT site FROM secrets)",
    ),
    (
        "a subquery that exists",
        f"SELECT count(*) AS n FROM bids {WINDOW} WHERE EXISTS (SELECT 1 FROM secrets)",
    ),
    ("a union", f"SELECT count(*) AS n FROM bids {WINDOW} UNION SELECT site FROM secrets"),
    ("a common table", f"WITH s AS (SELECT * FROM secrets) SELECT count(*) AS n FROM bids {WINDOW}, s"),
    (
        "Java by reflection",
        f"SELECT max(reflect('java.lang.System', 'getProperty', 'user.home')) AS r FROM bids {WINDOW}",
    ),
    ("a Java method", f"SELECT max(java_method('java.lang.Runtime', 'getRuntime')) AS r FROM bids {WINDOW}"),
    (
        "reflection that forgives",
        f"SELECT max(try_reflect('java.lang.System', 'getenv')) AS r FROM bids {WINDOW}",
    ),
    (
        "reflection in a predicate",
        f"SELECT count(*) AS n FROM bids {WINDOW} WHERE reflect('java.lang.System', 'exit', 0) = ''",
    ),
    ("the file of a row", f"SELECT max(input_file_name()) AS f FROM bids {WINDOW}"),
    ("the block of a row", f"SELECT max(input_file_block_start()) AS f FROM bids {WINDOW}"),
    ("who it is", f"SELECT max(current_user()) AS u FROM bids {WINDOW}"),
    ("the session's user", f"SELECT max(session_user()) AS u FROM bids {WINDOW}"),
    ("the database", f"SELECT max(current_database()) AS d FROM bids {WINDOW}"),
    ("Spark's version", f"SELECT max(version()) AS v FROM bids {WINDOW}"),
    ("a secret", f"SELECT max(secret('scope', 'key')) AS v FROM bids {WINDOW}"),
    ("an error on purpose", f"SELECT max(raise_error('x')) AS v FROM bids {WINDOW}"),
    ("the environment", f"SELECT max('${{env:HOME}}') AS v FROM bids {WINDOW}"),
    ("the environment, escaped", f"SELECT max('$\\{{env:HOME}}') AS v FROM bids {WINDOW}"),
    ("the environment, escaped as a code", f"SELECT max('\\u0024{{env:HOME}}') AS v FROM bids {WINDOW}"),
    ("the environment, escaped in octal", f"SELECT max('\\044{{env:HOME}}') AS v FROM bids {WINDOW}"),
    ("a property, raw", f"SELECT max(r'${{system:user.home}}') AS v FROM bids {WINDOW}"),
    ("Spark's settings", f"SELECT count(*) AS n FROM bids {WINDOW} WHERE upper('${{spark.app.id}}') = 'x'"),
    ("the environment as a name", f"SELECT count(*) AS `${{env:HOME}}` FROM bids {WINDOW}"),
    ("a program", f"SELECT TRANSFORM(site) USING 'cat /etc/passwd' FROM bids {WINDOW}"),
    ("a resource", "ADD JAR '/tmp/evil.jar'"),
    ("a function", "CREATE FUNCTION f AS 'Evil' USING JAR '/tmp/evil.jar'"),
    ("a setting", "SET spark.sql.warehouse.dir=/tmp"),
    ("an insert into a file", "INSERT OVERWRITE DIRECTORY '/tmp/http-evil' SELECT * FROM bids"),
    ("a table from a file", "CREATE TABLE t USING csv OPTIONS (path '/etc/passwd')"),
    ("two statements", f"SELECT count(*) AS n FROM bids {WINDOW}; DROP TABLE secrets"),
    ("a script", "EXECUTE IMMEDIATE 'DROP TABLE secrets'"),
    ("a model", f"SELECT max(ai_query('x', site)) AS a FROM bids {WINDOW}"),
    ("a request", f"SELECT max(http_request('http://127.0.0.1')) AS a FROM bids {WINDOW}"),
]


SQL_TEXTS = pytest.mark.parametrize("sql", [case[1] for case in SQL], ids=[case[0] for case in SQL])


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backend(make_engine, tmp_path_factory.mktemp("safety"), served_with(rows=2, queries=6)) as made:
        fill(made)
        yield made


@pytest.fixture(scope="module")
def back_with_secrets(
    make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """A server in a Spark session whose catalog has a table that the engine does not declare."""
    session = make_engine.session
    session.createDataFrame([(1,)], "site int").createOrReplaceTempView("secrets")
    with backend(make_engine, tmp_path_factory.mktemp("secrets")) as made:
        yield made
    session.catalog.dropTempView("secrets")


def assert_refused(back: Backend, url: str, sql: str) -> None:
    before = set(back.engine.queries())
    response = back.client.post(url, json={"sql": sql})
    assert 400 <= response.status_code < 500, response.text
    assert "root:" not in response.text
    assert set(back.engine.queries()) == before


@SQL_TEXTS
@pytest.mark.parametrize("url", ["/api/check", "/api/queries", "/api/previews", "/api/summaries"])
def test_sql_reaches_only_what_was_declared(back: Backend, sql: str, url: str) -> None:
    assert_refused(back, url, sql)


@SQL_TEXTS
def test_a_lookup_reaches_only_what_was_declared(back: Backend, sql: str) -> None:
    assert_refused(back, "/api/lookup", sql.replace(" SLIDE 1 minute", ""))


@on_spark("Spark has a catalog, tables from files, reflection, commands and substitution of variables")
@SQL_TEXTS
def test_sql_reaches_nothing_of_sparks(back_with_secrets: Backend, sql: str) -> None:
    assert_refused(back_with_secrets, "/api/queries", sql)


EXPRESSIONS = [
    "reflect('java.lang.System', 'getenv')",
    "(SELECT max(site) FROM secrets)",
    "input_file_name()",
]


HOSTILE_EXPRESSIONS = pytest.mark.parametrize("expression", EXPRESSIONS)
CLAUSES = pytest.mark.parametrize(
    "clause",
    [
        "SELECT {} AS x, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY {}",
        "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] HAVING max({}) = ''",
        "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] WHERE {} = ''",
        "SELECT max(CASE WHEN {} = '' THEN 1 END) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]",
        "SELECT * FROM bids WHERE {} = '' WITH PREFERENCE asc SUMMARY.Estimate.Count(site) BUDGET 9 PROBES",
        "SELECT site, {} AS x FROM bids WITH PREFERENCE asc SUMMARY.Estimate.Count(site) BUDGET 10 PROBES",
    ],
    ids=["grouped", "having", "where", "nested", "preferred where", "preferred"],
)


@HOSTILE_EXPRESSIONS
@CLAUSES
def test_every_clause_refuses_a_hostile_expression(back: Backend, clause: str, expression: str) -> None:
    response = back.client.post("/api/check", json={"sql": clause.replace("{}", expression)})
    assert error(response) == (400, "sql"), response.text


@on_spark("Spark has these functions")
@HOSTILE_EXPRESSIONS
@CLAUSES
def test_every_clause_refuses_a_hostile_expression_of_sparks(
    back_with_secrets: Backend, clause: str, expression: str
) -> None:
    response = back_with_secrets.client.post("/api/check", json={"sql": clause.replace("{}", expression)})
    assert error(response) == (400, "sql"), response.text


BODIES = [
    ("a sink", "/api/queries", {"sql": "x", "sinks": [{"format": "json", "path": "/tmp/http-evil"}]}),
    ("a checkpoint", "/api/queries", {"sql": "x", "checkpoint": "/tmp/http-evil"}),
    ("a stream of a file", "/api/queries", {"sql": "x", "streams": {"s": {"path": "/etc/passwd"}}}),
    ("options", "/api/previews", {"sql": "x", "options": {"path": "/etc/passwd"}}),
    ("a path", "/api/lookup", {"sql": "x", "path": "/etc/passwd"}),
]


@pytest.mark.parametrize(("url", "body"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
def test_fields_that_do_not_exist_are_refused(back: Backend, url: str, body: dict[str, Any]) -> None:
    assert back.client.post(url, json=body).status_code == 422
    assert not Path("/tmp/http-evil").exists()


@pytest.mark.parametrize("path", ["..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "..", "....//etc", "%00", "C:%5c"])
def test_names_are_no_paths(back: Backend, path: str) -> None:
    for url in (f"/api/queries/{path}/results", f"/api/streams/{path}/late", f"/api/queries/{path}"):
        response = back.client.get(url)
        # The client itself shortens `/api/queries/..` to `/api`, which lists links.
        is_index = response.request.url.path.rstrip("/") == "/api"
        assert response.status_code in (404, 307) or is_index, response.text


def test_answers_are_limited(back: Backend) -> None:
    results = back.client.get("/api/queries/per_site/results", params={"limit": 100_000}).json()
    assert (len(results["rows"]), results["more"]) == (2, True)
    response = back.client.post("/api/queries/on_demand/lookup", json={})
    assert (response.status_code, response.json()["error"]["kind"]) == (429, "limit")
    assert back.client.post("/api/prod", json={}).status_code == 429


def test_queries_are_limited(back: Backend) -> None:
    sql = f"SELECT count(*) AS n FROM bids {WINDOW}"
    assert back.client.post("/api/queries", json={"sql": sql, "name": "sixth"}).status_code == 201
    response = back.client.post("/api/queries", json={"sql": sql, "name": "seventh"})
    assert (response.status_code, response.json()["error"]["kind"]) == (429, "limit")
    assert back.client.delete("/api/queries/sixth").status_code == 204
    long = back.client.post("/api/check", json={"sql": "x" * (64 << 10) + "y"})
    assert long.status_code == 400
    assert back.client.post("/api/check", content=b" " * (4 << 20) + b"{}").status_code == 413
