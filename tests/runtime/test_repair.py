"""Repair of a checkpoint offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_MINUTE, PER_SITE, answers, bids, bids_engine
from transom.cli.main import main
from transom.errors import BatchError, StateError
from transom.runtime.quarantine import Quarantine
from transom.runtime.repair import REASON, Repair


def test_a_query_of_a_committed_batch_is_suspended_and_resumed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_MINUTE, "good")
    engine.register(PER_SITE, "bad")
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()
    engine.stop()
    with pytest.raises(StateError, match=r"no query or summary named bat; did you mean bad"):
        Repair(str(tmp_path / "checkpoint")).suspend("bat")
    Repair(str(tmp_path / "checkpoint")).suspend("bad")
    assert any(
        line.startswith(f"query bad: suspended ({REASON})")
        for line in Repair(str(tmp_path / "checkpoint")).lines()
    )
    again, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids((1, 1.0, "12:01")))
    again.step()
    assert again.query("bad").suspended == REASON and again.query("good").suspended is None
    assert answers(again.query("good")) == [("12:00", "12:01", 1)]
    again.query("bad").resume()
    again.step()
    assert again.query("bad").suspended is None


def test_the_clocks_of_groups_are_counted(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, watermark_by="site")
    feed.push(bids(*((site, 1.0, "12:00") for site in range(1_000))))
    engine.step()
    engine.stop()
    lines = list(Repair(str(tmp_path / "checkpoint")).lines())
    assert "clocks of bids: 1,000" in lines and max(map(len, lines)) < 100


@pytest.mark.parametrize("option", ["--suspend", "--skip"])
def test_a_begun_batch_goes_on_without_a_query(
    make_engine: EngineFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_MINUTE, "good")
    engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] "
                    "WHERE string(site) RLIKE concat('(', site)", "bad")  # fmt: skip
    feed.push(bids((1, 1.0, "12:00")))
    monkeypatch.setattr(
        Quarantine, "run", lambda self: self.attempt({}, False)
    )  # it never comes to a decision
    with pytest.raises(BatchError):
        engine.step()
    engine.stop()
    with pytest.raises(SystemExit) as ended:
        main(["repair", str(tmp_path / "checkpoint"), option, "bad" if option == "--suspend" else "1"])
    shown = capsys.readouterr().out
    assert not ended.value.code and "begun batch: 1 of bids" in shown and "control 0:" in shown
    assert ("leaves out bad" in shown) == (option == "--suspend")
    assert "no batch was committed" in shown and "spark" not in shown
    again, feed = bids_engine(make_engine, tmp_path)
    again.step()
    feed.push(bids((1, 1.0, "12:01")))
    again.step()
    assert answers(again.query("good")) == [("12:00", "12:01", 1)]
    assert list(again.queries()) == (["good", "bad"] if option == "--suspend" else ["good"])


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="not a checkpoint"):
        Repair(str(tmp_path))
