"""The commands that ask a running server: what they ask, what they print, and their exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.client.fakes import COUNT, FakeServer, results
from transom.cli import remote_commands
from transom.cli.main import FAILED, OK, USAGE, app
from transom.client.connection import Server


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    found = FakeServer()
    found.add("count", made=results(3, 4))
    monkeypatch.setattr(
        remote_commands, "Server", partial(Server, transport=httpx.MockTransport(found.answer))
    )
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_remote_commands_start_without_spark() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from transom.cli.main import app\n"
        "done = CliRunner().invoke(app, ['ps', '--server', 'http://127.0.0.1:9'])\n"
        "assert 'is `transom serve` running there?' in done.stderr\n"
        "heavy = {'pyspark', 'sqlglot', 'fastapi', 'nicegui', 'yaml'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestConnection:
    def test_no_server_is_a_failure(self) -> None:
        done = call("ps", "--server", "http://127.0.0.1:9")
        assert (done.exit_code, done.stdout) == (FAILED, "")
        assert done.stderr.startswith("error: no server at http://127.0.0.1:9 ")

    def test_an_invalid_address_is_a_usage_error(self) -> None:
        assert call("ps", "--server", "localhost").exit_code == USAGE

    def test_the_address_may_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRANSOM_SERVER", "http://127.0.0.1:8")
        assert "no server at http://127.0.0.1:8 " in call("ps").stderr

    def test_the_token_may_be_in_a_file(self, fake: FakeServer, tmp_path: Path) -> None:
        fake.token = "secret"
        (tmp_path / "token").write_text("secret\n")
        assert call("ps", "--token-file", str(tmp_path / "token")).exit_code == OK
        assert call("ps").exit_code == FAILED
        assert call("ps", "--token-file", str(tmp_path / "none")).exit_code == USAGE


class TestPs:
    def test_queries_as_a_table(self, fake: FakeServer) -> None:
        fake.add("broken", suspended="it failed", last=None, results=0)
        fake.add("new", pending=True, window=None)
        assert call("ps").stdout.splitlines() == [
            "name    kind      window                   state                 results  last",
            "------  --------  -----------------------  --------------------  -------  -------------------",
            "count   standing  1 minute every 1 minute  runs                        2  2013-01-01 12:03:00",
            "broken  standing  1 minute every 1 minute  suspended: it failed        0",
            "new     standing                           pending                     2  2013-01-01 12:03:00",
        ]

    def test_streams_as_a_table(self, fake: FakeServer) -> None:
        lines = call("ps", "--streams").stdout.splitlines()
        assert lines[0].split() == [
            "name",
            "queries",
            "rows",
            "rows/s",
            "lag",
            "watermark",
            "late",
            "rejected",
        ]
        assert re.split("  +", lines[2]) == [
            "bids",
            "1",
            "120",
            "40",
            "1.5 s",
            "2013-01-01 12:02:10",
            "2",
            "0",
        ]

    def test_queries_as_json(self, fake: FakeServer) -> None:
        rows = [json.loads(line) for line in call("ps", "--json").stdout.splitlines()]
        assert (rows[0]["name"], rows[0]["columns"][0]["name"]) == ("count", "window_start")
        rows = [json.loads(line) for line in call("ps", "--streams", "--json").stdout.splitlines()]
        assert rows[0]["watermark"] == 1_357_041_730_000_000

    def test_no_queries(self, fake: FakeServer) -> None:
        fake.queries.clear()
        done = call("ps")
        assert (done.stdout, done.stderr) == ("", "no queries are registered\n")

    def test_a_failed_engine_is_reported(self, fake: FakeServer) -> None:
        fake.status |= {"state": "failed", "failure": "no space left"}
        assert call("ps").stderr == "the engine is failed: no space left\n"


class TestRegister:
    def test_with_a_name_and_without(self, fake: FakeServer) -> None:
        assert call("register", "mine", COUNT).stdout == "mine\n"
        assert call("register", COUNT, "--partial").stdout == "q3\n"
        assert fake.asked[-1][2] == {"sql": COUNT, "partial": True}
        call("register", COUNT, "--since", "1 day ago")
        assert fake.asked[-1][2] == {"sql": COUNT, "partial": False, "since": "1 day ago"}

    def test_parameters_are_json_or_text(self, fake: FakeServer) -> None:
        given = ("limit=5", "site=north", "code='5'")
        options = [word for pair in given for word in ("--parameter", pair)]
        call("register", f"{COUNT} WHERE price > :limit AND site = :site AND code = :code", *options)
        assert fake.asked[-1][2]["sql"] == f"{COUNT} WHERE price > 5 AND site = 'north' AND code = '5'"

    def test_from_a_file(self, fake: FakeServer, tmp_path: Path) -> None:
        file = tmp_path / "queries.sql"
        file.write_text(f"-- the first\n{COUNT};\nCREATE SUMMARY items ON bids(site);\n{COUNT};")
        assert call("register", "--sql-file", str(file)).stdout == "q2\nq3\n"
        assert fake.summaries == {"items"}
        file.write_text(COUNT)
        assert call("register", "mine", "--sql-file", str(file)).stdout == "mine\n"

    def test_an_error_points_into_the_wrong_query(self, fake: FakeServer) -> None:
        done = call("register", "mine", "SELECT sum(prise) FROM bids")
        assert (done.exit_code, done.stdout) == (USAGE, "")
        assert done.stderr.splitlines() == [
            "error: unknown column prise",
            "  SELECT sum(prise) FROM bids",
            "             ^^^^^",
        ]

    def test_none_of_several_queries_is_registered_if_one_is_wrong(self, fake: FakeServer) -> None:
        assert call("register", f"{COUNT}; SELECT sum(prise) FROM bids").exit_code == USAGE
        assert list(fake.queries) == ["count"]

    MISUSED = (
        ("nothing", (), "give a query"),
        ("two queries", ("SELECT 1", "SELECT 2"), "write transom register [NAME]"),
        ("one name for two", ("mine", "SELECT 1; SELECT 2"), "mine can name only one query, and there are 2"),
        ("no such file", ("--sql-file", "nowhere.sql"), "--sql-file nowhere.sql"),
        ("no value", ("SELECT :a", "--parameter", "a"), "--parameter a: write NAME=VALUE"),
        ("another parameter", ("SELECT :a", "--parameter", "b=1"), "the parameter :a has no value"),
        ("two queries and a parameter", ("SELECT :a; SELECT :a", "--parameter", "a=1"), "for one query"),
    )

    @pytest.mark.parametrize(
        ("words", "message"), [case[1:] for case in MISUSED], ids=[c[0] for c in MISUSED]
    )
    def test_usage_errors_are_reported(self, fake: FakeServer, words: tuple[str, ...], message: str) -> None:
        done = call("register", *words)
        assert done.exit_code == USAGE
        assert message in done.stderr


class TestDrop:
    def test_each_named_query_is_dropped(self, fake: FakeServer) -> None:
        fake.add("other")
        assert call("drop", "count", "other").exit_code == OK
        assert fake.queries == {}

    def test_an_unknown_query_is_an_error(self, fake: FakeServer) -> None:
        done = call("drop", "cuont")
        assert (done.exit_code, done.stderr) == (FAILED, "error: there is no query named cuont\n")


class TestTail:
    def leave(self, fake: FakeServer, **batches: int) -> None:
        """While a client waits, each query gets a result and is then dropped."""

        def waiting(name: str) -> None:
            if name in batches:
                fake.push(name, batches.pop(name))
            else:
                fake.queries.pop(name, None)

        fake.waiting = waiting

    def test_until_the_query_is_dropped(self, fake: FakeServer) -> None:
        self.leave(fake, count=5)
        done = call("tail", "count", "--format", "table")
        assert done.exit_code == OK
        assert done.stdout == "final  2013-01-01 12:00:00  2013-01-01 12:01:00  site 1  n 5\n"
        assert done.stderr == "count was dropped\n"

    def test_from_the_start_in_csv(self, fake: FakeServer) -> None:
        self.leave(fake, count=5)
        lines = call("tail", "count", "--from-start", "--format", "csv", "--full").stdout.splitlines()
        assert lines[0].startswith("window_start,window_end,site,n,kind,complete")
        assert [line.split(",")[3] for line in lines[1:]] == ["3", "4", "5"]

    def test_results_of_several_queries_have_the_query_s_name(self, fake: FakeServer) -> None:
        fake.add("other")
        self.leave(fake, count=5, other=6)
        rows = [json.loads(line) for line in call("tail", "count", "other").stdout.splitlines()]
        assert sorted((row["query"], row["n"]) for row in rows) == [("count", 5), ("other", 6)]

    def test_csv_of_several_queries_is_refused(self, fake: FakeServer) -> None:
        assert call("tail", "count", "other", "--format", "csv").exit_code == USAGE

    def test_ctrl_c_ends_the_command_without_an_error(
        self, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*arguments: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(remote_commands, "follow_all", interrupted)
        assert call("tail", "count").exit_code == OK

    def test_an_on_demand_query_has_no_tail(self, fake: FakeServer) -> None:
        fake.add("top", "SELECT max(site) FROM bids [RANGE 1 minute]")
        done = call("tail", "top")
        assert done.exit_code == USAGE
        assert "use transom lookup top" in done.stderr

    def test_a_server_that_refuses_during_a_tail_is_a_failure(self, fake: FakeServer) -> None:
        fake.waiting = lambda name: setattr(fake, "token", "new")
        done = call("tail", "count")
        assert done.exit_code == FAILED
        assert "needs a token" in done.stderr


class TestProd:
    def test_one_query(self, fake: FakeServer) -> None:
        done = call("prod", "count", "--until", "2013-01-01 13:00", "--where", "site=1", "--where", "city=7")
        assert fake.asked[-1][2] == {"until": "2013-01-01 13:00", "where": {"site": 1, "city": "7"}}
        assert json.loads(done.stdout) == {
            "window_start": "2013-01-01T12:00:00Z",
            "window_end": "2013-01-01T12:01:00Z",
            "site": 1,
            "n": 3,
        }

    def test_all_queries(self, fake: FakeServer) -> None:
        fake.add("other")
        rows = [json.loads(line) for line in call("prod", "--at", "17", "--full").stdout.splitlines()]
        assert [(row["query"], row["kind"]) for row in rows] == [("count", "early"), ("other", "early")]
        assert fake.asked[-1][2] == {"at": 17}

    def test_an_invalid_pattern_is_reported(self, fake: FakeServer) -> None:
        assert call("prod", "--where", "site").exit_code == USAGE


class TestLookup:
    def test_by_name(self, fake: FakeServer) -> None:
        done = call("lookup", "count", "--range", "5 minutes", "--where", "site=1", "--where", "site=2")
        assert fake.asked[-1][2] == {"range": "5 minutes", "where": {"site": [1, 2]}}
        assert json.loads(done.stdout) == {"n": 5, "complete": True}

    def test_by_text(self, fake: FakeServer) -> None:
        done = call("lookup", "SELECT count(*) AS n FROM bids [RANGE 1 minute]", "--format", "table")
        assert done.stdout.splitlines() == ["n  complete", "-  --------", "5  false"]

    def test_range_and_rows_are_refused_for_sql(self, fake: FakeServer) -> None:
        assert call("lookup", "SELECT count(*) AS n FROM bids", "--rows", "5").exit_code == USAGE
