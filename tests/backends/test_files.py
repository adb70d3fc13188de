"""Paths as sources: what is listed, in which order, and what becomes of rows that can't be parsed."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine_factory import ON_BOTH, on_spark
from transom.backends.base import Backend, Frame
from transom.backends.file_names import format_of
from transom.backends.hidden_columns import CORRUPT
from transom.errors import SettingError

pytestmark = ON_BOTH


def write(path: Path, text: str, at: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    os.utime(path, (at, at))
    return path


def rows(frame: Frame) -> list[dict[str, Any]]:
    return frame.to_table().to_pylist()


def names(groups: list[list[str]]) -> list[list[str]]:
    return [[os.path.basename(file) for file in group] for group in groups]


@pytest.mark.parametrize(
    "given, format",
    [
        (["a.json"], "json"),
        (["a.jsonl", "b.ndjson.gz", "c.JSON"], "json"),
        (["a.csv.bz2"], "csv"),
        (["a.tsv"], "csv"),
        (["a.snappy.parquet"], "parquet"),
        (["a.orc"], "orc"),
    ],
)
def test_the_format_is_told_by_the_extension(given: list[str], format: str) -> None:
    assert format_of(given) == format


@pytest.mark.parametrize("given", [["a.json", "b.csv"], ["data"], ["a.txt"], ["a.gz"]])
def test_a_format_that_cannot_be_told_is_asked_for(given: list[str]) -> None:
    with pytest.raises(SettingError, match="give it, one of json, csv, parquet, orc"):
        format_of(given)


def test_files_come_by_modification_time_and_then_by_name(backend: Backend, tmp_path: Path) -> None:
    for name, at in (("a", 3000), ("d", 1000), ("b", 1000), ("c", 2000)):
        write(tmp_path / f"{name}.json", '{"x": 1}\n', at)
    write(tmp_path / "_SUCCESS", "x")
    write(tmp_path / ".hidden.json", '{"x": 1}\n')
    write(tmp_path / "empty.json", "")
    write(tmp_path / "deeper" / "e.json", '{"x": 1}\n')
    source = backend.open_files(str(tmp_path))
    assert names(source.pending()) == [["b.json"], ["d.json"], ["c.json"], ["a.json"]]
    assert names(source.pending(source.pending()[1])) == [["b.json"], ["c.json"], ["a.json"]]
    source = backend.open_files(str(tmp_path), files_per_batch=3)
    assert names(source.pending()) == [["b.json", "d.json", "c.json"], ["a.json"]]


def test_files_that_are_done_are_known_by_name_alone(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(tmp_path / f"{number:02d}.json", '{"x": 1}\n')
    source = backend.open_files(str(tmp_path))
    done = [file for group in source.pending() for file in group]
    write(tmp_path / "new.json", '{"x": 1}\n', at=10)  # older than all of them, and new all the same
    looked_at: list[str] = []
    real = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        looked_at.append(str(path))
        return real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        assert names(source.pending(done)) == [["new.json"]]
    assert [os.path.basename(path) for path in looked_at if path.endswith(".json")] == ["new.json"]


def test_a_glob_and_a_single_file_are_paths(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a1", "a2", "b1", "odd name[1]"):
        write(tmp_path / f"{name}.json", '{"x": 1}\n')
    assert names(backend.open_files(f"{tmp_path}/a*.json").pending()) == [["a1.json"], ["a2.json"]]
    assert names(backend.open_files(f"file://{tmp_path}/b1.json").pending()) == [["b1.json"]]
    odd = backend.open_files(f"{tmp_path}/odd name[1].json")
    assert rows(odd.read(odd.pending()[0])) == [{"x": 1, CORRUPT: None}]
    monkeypatch.chdir(tmp_path)
    assert names(backend.open_files("b1.json").pending()) == [["b1.json"]]


@pytest.mark.parametrize(
    "path, options, said",
    [
        ("nowhere", {}, "no such file or directory"),
        ("nowhere/*.json", {}, "no such file or directory"),
        ("empty", {}, "no files in .*empty"),
        ("empty", {"format": "json"}, "no files in .*empty"),
        ("bad", {}, "no columns found in .*bad: are its files json"),
        ("good", {"files_per_batch": 0}, "files_per_batch is at least 1"),
        ("good", {"schema": "x itn"}, "not a schema"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused(
    backend: Backend, tmp_path: Path, path: str, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "bad" / "a.json", "this is no json\n")
    write(tmp_path / "good" / "a.json", '{"x": 1}\n')
    with pytest.raises(SettingError, match=said):
        backend.open_files(f"{tmp_path}/{path}", **options)


@on_spark("Hadoop's file systems are Spark's")
def test_an_unknown_file_system_is_refused(backend: Backend) -> None:
    with pytest.raises(SettingError, match="can't list nowhere://x/y: No FileSystem for scheme"):
        backend.open_files("nowhere://x/y")


def test_an_empty_directory_may_fill_later(backend: Backend, tmp_path: Path) -> None:
    source = backend.open_files(str(tmp_path), format="json", schema="x bigint")
    assert source.pending() == []
    write(tmp_path / "a.json", '{"x": 7}\n')
    assert rows(source.read(source.pending()[0])) == [{"x": 7, CORRUPT: None}]


JSON = """{"site": 1, "price": 1.5, "ts": "2013-01-01 12:05:00", "note": "2013-01-01 00:00:00"}
{"site": 2, "price": "oops", "ts": "2013-01-01T12:06:00Z", "note": "x"}

not json
{"site": 3}
"""


def test_json_is_inferred_and_its_bad_rows_carry_their_text(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz", JSON)
    schema = "site int, price double, ts timestamp, note string"
    source = backend.open_files(str(tmp_path), schema=schema)
    found = rows(source.read(source.pending()[0]))
    times = [datetime(2013, 1, 1, 12, 5, tzinfo=UTC), datetime(2013, 1, 1, 12, 6, tzinfo=UTC), None, None]
    assert [row["ts"] for row in found] == times
    assert [row["site"] for row in found] == [1, 2, None, 3]
    assert [row[CORRUPT] for row in found] == [None, JSON.splitlines()[1], "not json", None]


def test_json_times_are_inferred_when_all_parse(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path / "a.json", "\n".join(line for line in JSON.splitlines() if "oops" not in line))
    write(tmp_path / "b.json", JSON.splitlines()[1].replace('"oops"', "2.5"))
    source = backend.open_files(str(tmp_path))
    assert source.columns == {
        "note": pa.string(),  # one of them is no time
        "price": pa.float64(),
        "site": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
    }


@pytest.mark.parametrize("name, sep", [("a.csv", ","), ("a.tsv", "\t")])
def test_csv_has_a_header_and_inferred_types(backend: Backend, tmp_path: Path, name: str, sep: str) -> None:
    lines = ["site,price,ts", "1,1.5,2013-01-01 12:05:00", "2,,2013-01-01 12:06:00"]
    write(tmp_path / name, "\n".join(lines).replace(",", sep))
    source = backend.open_files(str(tmp_path))
    assert rows(source.read(source.pending()[0])) == [
        {"site": 1, "price": 1.5, "ts": datetime(2013, 1, 1, 12, 5, tzinfo=UTC), CORRUPT: None},
        {"site": 2, "price": None, "ts": datetime(2013, 1, 1, 12, 6, tzinfo=UTC), CORRUPT: None},
    ]


def test_csv_columns_are_found_by_name_in_each_file(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "site,price\n1,1.5\nbad,2.5\n", 1000)
    write(tmp_path / "b.csv", "extra,PRICE\nx,3.5\n", 2000)
    write(tmp_path / "c.csv", "price,site\n4.5,4\n", 3000)
    source = backend.open_files(str(tmp_path), schema="site int, price double", files_per_batch=3)
    found = sorted(rows(source.read(source.pending()[0])), key=lambda row: row["price"])
    assert found == [
        {"site": 1, "price": 1.5, CORRUPT: None},
        {"site": None, "price": 2.5, CORRUPT: "bad,2.5"},
        {"site": None, "price": 3.5, CORRUPT: None},
        {"site": 4, "price": 4.5, CORRUPT: None},
    ]


def test_csv_without_a_header_goes_by_position(backend: Backend, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "1;x\n")
    source = backend.open_files(
        str(tmp_path), schema="site int, name string", options={"header": "false", "sep": ";"}
    )
    assert rows(source.read(source.pending()[0])) == [{"site": 1, "name": "x", CORRUPT: None}]


@pytest.mark.parametrize("name, text", [("a.json", '{"a": 1, "b": "oops"}\n'), ("a.csv", "a,b\n1,oops\n")])
def test_a_row_is_corrupt_whichever_columns_are_read(
    backend: Backend, tmp_path: Path, name: str, text: str
) -> None:
    write(tmp_path / name, text)
    source = backend.open_files(str(tmp_path), schema="a int, b int")
    frame = source.read(source.pending()[0])
    bad = text.splitlines()[-1]
    assert rows(frame.project({}, ["a", CORRUPT])) == [{"a": 1, CORRUPT: bad}]
    assert rows(frame.project({}, [CORRUPT])) == [{CORRUPT: bad}]
    assert frame.filter(f"{CORRUPT} IS NULL").to_table().num_rows == 0


def test_parquet_files_that_lack_a_column_give_nulls(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": ["one"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [2]}), tmp_path / "b.parquet")
    source = backend.open_files(str(tmp_path), files_per_batch=2)
    assert not source.is_text
    found = sorted(rows(source.read(source.pending()[0])), key=lambda row: row["x"])
    assert found == [{"x": 1, "y": "one"}, {"x": 2, "y": None}]
