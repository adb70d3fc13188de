"""`transom plan` and `transom apply` against a real server: what they print, change, keep, and leave alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import transom
from transom.cli.folder_commands import CHANGES_EXIT_CODE
from transom.cli.main import FAILED, OK, USAGE, app
from transom.runtime.handles import Feed

PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
HIGH = (
    "SELECT site, max(price) AS top FROM bids [RANGE 2 minutes SLIDE 1 minute] WHERE price > 5 GROUP BY site"
)
OVER = "SELECT max(n) AS most FROM per_site [RANGE 1 hour SLIDE 1 hour]"
TAG = "folder:alerts"


@dataclass
class Deployment:
    """A server, the engine behind it, which tests step, and a folder for it."""

    url: str
    engine: transom.Engine
    feed: Feed
    folder: Path

    def write(self, **texts: str | None) -> None:
        for name, text in texts.items():
            path = self.folder / f"{name}.sql"
            path.unlink() if text is None else path.write_text(text)

    def call(self, *words: str) -> Result:
        command, *options = words
        return CliRunner().invoke(app, [command, str(self.folder), *options, "--server", self.url])

    def plan(self, *options: str) -> dict[str, dict[str, object]]:
        done = self.call("plan", "--json", *options)
        return {change["name"]: change for change in json.loads(done.stdout)["changes"]}

    def actions(self, *options: str) -> dict[str, object]:
        return {name: change["action"] for name, change in self.plan(*options).items()}

    def apply(self, *options: str) -> Result:
        done = self.call("apply", "--yes", *options)
        assert done.exit_code == OK, done.output
        self.engine.step()
        return done

    def texts(self) -> dict[str, str]:
        return {name: query.text for name, query in self.engine.queries().items()}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    engine = transom.Engine(backend="local", checkpoint=tmp_path / "checkpoint")
    feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
    folder = tmp_path / "alerts"
    folder.mkdir()
    with transom.serving(engine, start=False, dashboard=False) as served:
        yield Deployment(served.url, engine, feed, folder)


def test_a_new_folder_is_planned_applied_and_then_unchanged(deployment: Deployment) -> None:
    deployment.write(
        per_site=PER_SITE, high=f"-- transom:\n--   tags: [prices]\n--   description: bids above 5\n{HIGH}"
    )
    planned = deployment.call("plan")
    assert planned.exit_code == CHANGES_EXIT_CODE
    assert "+ per_site  it is new" in planned.stdout and planned.stdout.endswith("2 to add\n")
    assert deployment.texts() == {}  # a plan changes nothing
    deployment.apply()
    assert deployment.texts() == {"high": HIGH, "per_site": PER_SITE}
    high = deployment.engine.query("high")
    assert (high.description, set(high.tags)) == ("bids above 5", {"prices", TAG})
    again = deployment.call("plan")
    assert (again.exit_code, again.stdout) == (OK, "2 unchanged\n")
    assert deployment.call("apply").stdout == "2 unchanged\n"  # nothing to ask


def test_an_edit_says_what_is_kept_and_keeps_it(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.feed.push([(1, 6.0, "2024-01-01 12:00:10"), (1, 6.0, "2024-01-01 12:01:10")])
    deployment.engine.step()
    deployment.write(per_site=PER_SITE + " HAVING n > 0")
    change = deployment.plan()["per_site"]
    assert (change["action"], change["kept"], change["message"]) == ("edit", True, "open windows are kept")
    assert change["diff"] == [f"-{PER_SITE}", f"+{PER_SITE} HAVING n > 0"]
    assert "edited per_site: open windows are kept" in deployment.apply().stderr
    deployment.engine.drain()
    results = deployment.engine.query("per_site").results()
    assert results.column("n").to_pylist() == [1, 2, 1]  # the window over both bids has both


def test_an_edit_says_what_is_lost(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.feed.push([(1, 6.0, "2024-01-01 12:00:10")])
    deployment.engine.step()
    deployment.write(per_site=PER_SITE.replace("GROUP", "WHERE price > 5 GROUP"))
    change = deployment.plan()["per_site"]
    assert change["kept"] is False and "because WHERE changed" in str(change["message"])
    shown = deployment.call("plan").stdout
    assert "~ per_site  " in shown and "    + SELECT site" in shown and "    - SELECT site" in shown


def test_queries_that_left_the_folder_are_dropped_only_with_prune(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE, over=OVER, high=HIGH)
    deployment.apply()
    deployment.write(per_site=None, over=None)
    left = deployment.call("plan")
    assert (left.exit_code, deployment.actions()) == (
        OK,
        {"over": "leave", "per_site": "leave", "high": "keep"},
    )
    assert "? per_site  it is not in the folder any more; --prune drops it" in left.stdout
    deployment.apply()
    assert set(deployment.texts()) == {"per_site", "over", "high"}
    assert deployment.call("plan", "--prune").exit_code == CHANGES_EXIT_CODE
    deployment.apply("--prune")  # the query that reads the other is dropped first
    assert set(deployment.texts()) == {"high"}


def test_queries_of_others_are_left_alone(deployment: Deployment) -> None:
    deployment.engine.register(HIGH, "someones")
    deployment.engine.register(PER_SITE, "per_site")
    deployment.engine.step()
    deployment.write(over=OVER)
    deployment.apply("--prune")
    assert set(deployment.texts()) == {"someones", "per_site", "over"}
    deployment.write(per_site=PER_SITE + " HAVING n > 1", over=None)
    for command in ("plan", "apply"):
        done = deployment.call(command, *(["--yes"] if command == "apply" else []), "--prune")
        assert done.exit_code == FAILED
        assert "! per_site  a query of this name is registered, without the tag folder:alerts" in done.stdout
    deployment.engine.step()
    assert deployment.texts()["per_site"] == PER_SITE and "over" in deployment.texts()  # nothing was changed
    deployment.engine.query("per_site").describe(tags=[TAG])  # as the message says
    deployment.engine.step()
    assert deployment.actions()["per_site"] == "edit"


def test_two_folders_share_a_server_by_their_tags(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply("--tag", "one")
    deployment.write(per_site=None, high=HIGH)
    deployment.apply("--tag", "two", "--prune")
    assert set(deployment.texts()) == {"per_site", "high"}


def test_queries_over_new_queries_are_registered_in_order(deployment: Deployment) -> None:
    deployment.write(a_top=OVER, per_site=PER_SITE)
    assert "checked after per_site is registered" in str(deployment.plan()["a_top"]["message"])
    done = deployment.apply()
    assert done.stderr.index("added per_site") < done.stderr.index("added a_top")


def test_options_alone_are_a_change(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.write(per_site=f"-- transom:\n--   description: bids\n--   tags: [a]\n{PER_SITE}")
    assert deployment.actions() == {"per_site": "describe"}
    deployment.apply()
    query = deployment.engine.query("per_site")
    assert (query.description, set(query.tags)) == ("bids", {"a", TAG})
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    query = deployment.engine.query("per_site")
    assert (query.description, query.tags) == ("", (TAG,))
    assert deployment.actions() == {"per_site": "keep"}


def test_partial_is_a_replacement(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.write(per_site=f"-- transom:\n--   partial: true\n{PER_SITE}")
    assert deployment.actions() == {"per_site": "replace"}
    deployment.apply()
    assert deployment.engine.query("per_site").tags == (TAG,)
    assert deployment.actions() == {"per_site": "keep"}


def test_a_wrong_query_changes_nothing_and_names_its_file(deployment: Deployment) -> None:
    deployment.write(good=PER_SITE, wrong=PER_SITE.replace("site,", "sight,"))
    done = deployment.call("apply", "--yes")
    assert done.exit_code == USAGE
    assert "wrong.sql" in done.stderr and "sight" in done.stderr and "^^^^^" in done.stderr
    assert deployment.texts() == {}


def test_a_changed_query_that_is_wrong_names_its_file(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.write(per_site=PER_SITE.replace("site,", "sight,"), high=HIGH)
    done = deployment.call("apply", "--yes")
    assert done.exit_code == USAGE and "per_site.sql" in done.stderr
    assert deployment.texts() == {"per_site": PER_SITE}


def test_an_apply_asks_on_a_terminal(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment.write(per_site=PER_SITE)
    done = deployment.call("apply")
    assert done.exit_code == USAGE and "give --yes" in done.stderr
    runner = CliRunner()
    for answer, expected in (("n\n", {}), ("y\n", {"per_site": PER_SITE})):
        with runner.isolation(input=answer):
            monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
            try:
                app(["apply", str(deployment.folder), "--server", deployment.url], standalone_mode=False)
            except BaseException as ended:
                assert answer == "n\n", ended
        deployment.engine.step()
        assert deployment.texts() == expected


def test_suspended_and_paused_queries_are_named(deployment: Deployment) -> None:
    deployment.write(per_site=PER_SITE)
    deployment.apply()
    deployment.engine.query("per_site").pause()
    deployment.engine.step()
    done = deployment.call("plan")
    assert (done.exit_code, "per_site: it is paused" in done.stdout) == (OK, True)


def test_an_apply_can_be_repeated_before_the_next_batch(deployment: Deployment) -> None:
    """Changes take effect with a batch; a second plan before it already sees them."""
    deployment.write(per_site=PER_SITE)
    assert deployment.call("apply", "--yes").exit_code == OK
    assert deployment.actions() == {"per_site": "keep"}
