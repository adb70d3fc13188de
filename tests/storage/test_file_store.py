"""The store: whole files or none."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pyarrow as pa
import pytest

from transom.errors import SettingError
from transom.storage.file_store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store.temporary()
    yield made
    made.delete()


def test_what_was_written_is_read(store: Store) -> None:
    store.write("a/b/c.bin", b"\x00\x01")
    store.write("a/b/c.bin", b"second")
    assert store.read("a/b/c.bin") == b"second"
    assert store.list("a/b") == ["c.bin"] and store.list("a") == ["b"] and store.list() == ["a"]


def test_a_missing_file_is_not_read_and_a_missing_directory_is_empty(store: Store) -> None:
    assert not store.exists("x") and store.list("x") == []
    with pytest.raises(FileNotFoundError):
        store.read("x")


def test_names_are_listed_in_order(store: Store) -> None:
    for name in ("2", "10", "1"):
        store.write(f"d/{name}", b"")
    assert store.list("d") == ["1", "10", "2"]


def test_files_and_directories_are_deleted_and_again_is_no_error(store: Store) -> None:
    store.write("d/one", b"1")
    store.write("d/e/two", b"2")
    store.delete("d/one")
    assert store.list("d") == ["e"]
    for _ in range(2):
        store.delete("d")
        assert not store.exists("d")


def test_an_arrow_table_keeps_its_types(store: Store) -> None:
    table = pa.table(
        {
            "ts": pa.array([1, None], pa.timestamp("us", tz="UTC")),
            "x": pa.array([1, None]).cast(pa.decimal128(38, 3)),
            "l": pa.array([[1], None], pa.list_(pa.int32())),
        }
    )
    for given in (table, table.slice(0, 0), table.select([])):
        store.write_table("t.arrow", given)
        assert store.read_table("t.arrow").equals(given)


def test_a_write_that_fails_midway_leaves_the_file_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("batch", b"whole")

    class Broken:
        def __init__(self, inner: object):
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            if name == "move":
                raise OSError("the machine stopped here")
            return getattr(self.inner, name)

    monkeypatch.setattr(store, "_fs", Broken(store._fs))
    with pytest.raises(OSError, match="stopped here"):
        store.write("batch", b"half")
    assert store.read("batch") == b"whole" and store.list() == ["batch"]


def test_a_path_and_its_uri_are_the_same_store(store: Store, tmp_path: Path) -> None:
    Store(tmp_path / "with space").write("x", b"1")
    escaped = (tmp_path / "with space").as_uri()
    for same in (escaped, escaped + "/", Store(escaped).path()):
        assert Store(same).read("x") == b"1"
        assert Store(same).path("x") == f"file://{tmp_path}/with space/x"


def test_an_address_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(SettingError, match="no place to store files"):
        Store("nowhere://x/y")


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_a_name_outside_the_store_is_refused(store: Store, name: str) -> None:
    with pytest.raises(SettingError, match="not a name inside"):
        store.write(name, b"")
