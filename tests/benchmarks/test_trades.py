"""The generated hour has the characteristics that the papers report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.trades import HOUR, LARGEST, START, TradingHour, cache_directory, generate, trading_hour

ROWS = 100_000


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> TradingHour:
    return trading_hour(tmp_path_factory.mktemp("hour"), ROWS)


@pytest.fixture(scope="module")
def trades(hour: TradingHour) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in hour.files()])


def test_the_same_seed_gives_the_same_hour() -> None:
    assert generate(1_000, 7) == generate(1_000, 7)
    assert generate(1_000, 7)[0] != generate(1_000, 8)[0]


def test_ten_files_of_six_minutes_in_order_of_time(hour: TradingHour, trades: pa.Table) -> None:
    assert len(hour.files()) == 10
    assert trades.num_rows == ROWS
    for number, file in enumerate(hour.files()):
        times = pq.read_table(file)["time"].cast(pa.int64()).to_numpy()
        assert START + number * HOUR // 10 <= times.min() and times.max() < START + (number + 1) * HOUR // 10
    times = trades["time"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert 0.02 < (np.diff(times) == 0).mean() < 0.1
    modified = [file.stat().st_mtime for file in hour.files()]
    assert modified == sorted(set(modified))


def test_the_rate_varies(trades: pa.Table) -> None:
    times = trades["time"].cast(pa.int64()).to_numpy()
    minutes = np.bincount((times - START) // 60_000_000, minlength=60)
    assert minutes.min() > 0
    assert minutes.max() > 1.2 * minutes.min()


def test_volumes_are_as_the_paper_found_them(trades: pa.Table) -> None:
    volumes = trades["vol"].to_numpy()
    common = Counter(volumes.tolist()).most_common(15)
    assert common[0][0] == 100
    assert common[0][1] / ROWS == pytest.approx(0.5, abs=0.02)
    assert sum(count for _, count in common) > 0.9 * ROWS
    assert volumes.min() > 0 and volumes.max() <= LARGEST


def test_a_full_hour_has_under_2000_volumes_in_ten_minutes() -> None:
    trades, _, _ = generate(1_181_901 // 6, 3)
    assert 500 < len(pc.unique(trades["vol"])) < 2_000
    assert pc.max(trades["vol"]).as_py() > 100_000


def test_prices_are_whole_cents_near_the_closing_price(hour: TradingHour) -> None:
    joined = pa.concat_tables(hour.batches())
    price, close = joined["price"].to_numpy(), joined["cp"].to_numpy()
    np.testing.assert_allclose(price * 100, np.round(price * 100), atol=1e-6)
    change = np.abs(price - close) / close
    assert np.median(change) < 0.03
    assert len(np.unique(change)) > 1_000


def test_most_trades_join_and_batches_keep_the_order_of_time(hour: TradingHour) -> None:
    batches = hour.batches()
    joined = pa.concat_tables(batches)
    assert joined.column_names == ["time", "symbol", "price", "vol", "cp", "r3000", "r2000", "r1000"]
    assert 0.93 * ROWS < joined.num_rows < ROWS
    assert (np.diff(joined["time"].cast(pa.int64()).to_numpy()) >= 0).all()
    closing = dict(zip(*pq.read_table(hour.closing).to_pydict().values(), strict=True))
    for row in batches[3].slice(0, 50).to_pylist():
        assert row["cp"] == closing[row["symbol"]]


def test_r1000_and_r2000_partition_most_of_r3000(hour: TradingHour) -> None:
    members = pq.read_table(hour.members)
    r3000, r2000, r1000 = (members[name].to_numpy() for name in ("r3000", "r2000", "r1000"))
    assert not (r1000 & r2000).any()
    assert not ((r1000 | r2000) & ~r3000).any()
    assert (r1000 | r2000).sum() > 0.98 * r3000.sum()
    assert 0 < r3000.sum() < len(r3000)


def test_an_hour_is_generated_once(tmp_path: Path) -> None:
    first = trading_hour(tmp_path, 500)
    written = first.closing.stat().st_mtime_ns
    assert trading_hour(tmp_path, 500).closing.stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == [first.directory.name]


def test_the_cache_directory_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSOM_BENCH_DATA", str(tmp_path))
    assert cache_directory() == tmp_path
