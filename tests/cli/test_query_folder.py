"""A folder of `.sql` files: its queries, their options, their order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cli.query_folder import read_folder, read_query_file
from transom.errors import SettingError, SQLError, TransomError

PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"


def written(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.sql"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_a_query_has_the_name_of_its_file_and_the_options_of_its_first_comments(tmp_path: Path) -> None:
    text = (
        "-- Owned by the team of sites.\n"
        "-- transom:\n"
        "--   description: sites with many bids\n"
        "--   tags: [bids, sites, bids]\n"
        "--   partial: true\n"
        "--   parameters: {limit: 10, city: 'it''s'}\n"
        "\n"
        "SELECT site, count(*) AS n -- of a minute\nFROM bids [RANGE 1 minute SLIDE 1 minute]\n"
        "WHERE city = :city GROUP BY site HAVING n > :limit;\n"
    )
    query = read_query_file(written(tmp_path, busy=text) / "busy.sql")
    assert query.name == "busy" and query.partial
    assert (query.description, query.tags) == ("sites with many bids", ("bids", "sites"))
    assert query.text.startswith("SELECT site, count(*) AS n -- of a minute\nFROM bids")
    assert query.text.endswith("WHERE city = 'it''s' GROUP BY site HAVING n > 10")
    assert query.reads == ("bids",)


def test_comments_without_options_stay_in_the_text(tmp_path: Path) -> None:
    query = read_query_file(written(tmp_path, plain=f"-- a note\n{PER_SITE}") / "plain.sql")
    assert query.text == f"-- a note\n{PER_SITE}"
    assert (query.description, query.tags, query.partial) == ("", (), False)


REFUSED = [
    ("an unknown option", "-- transom:\n--   tag: [a]\n" + PER_SITE, "no option tag; did you mean tags"),
    ("an option of another kind", "-- transom:\n--   tags: a\n" + PER_SITE, "tags: expected a list of texts"),
    ("a tag that is a number", "-- transom:\n--   tags: [1]\n" + PER_SITE, "expected texts"),
    ("options that are not indented", "-- transom:\n-- partial: true\n" + PER_SITE, "indent all options"),
    ("options in the line that opens them", "-- transom: {partial: true}\n" + PER_SITE, "alone in its line"),
    ("options that are no YAML", "-- transom:\n--   tags: [a\n" + PER_SITE, "not YAML"),
    ("a parameter without a value", "-- transom:\n--   parameters: {a: 1}\n" + PER_SITE, "no parameter :a"),
    ("no query", "-- nothing here\n", "it has -- nothing"),
    ("an empty file", "", "it has 0 statements"),
    ("two queries", f"{PER_SITE};\n{PER_SITE}", "it has 2 statements"),
    ("a view", "CREATE VIEW v AS SELECT * FROM bids", "it has CREATE VIEW"),
]


@pytest.mark.parametrize(("text", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_file_with_a_mistake_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, wrong=text) / "wrong.sql"
    with pytest.raises(TransomError, match=message) as caught:
        read_query_file(path)
    assert str(path) in str(caught.value)


def test_a_missing_parameter_points_at_its_place(tmp_path: Path) -> None:
    text = "-- transom:\n--   parameters: {a: 1}\nSELECT count(*) AS n FROM bids [RANGE :a SLIDE :b]"
    with pytest.raises(SQLError, match="the parameter :b has no value"):
        read_query_file(written(tmp_path, wrong=text) / "wrong.sql")


def test_queries_come_after_those_that_they_read(tmp_path: Path) -> None:
    over = "SELECT max(n) AS top FROM {} [RANGE 1 hour SLIDE 1 hour]"
    folder = written(tmp_path, a=over.format("B"), b=over.format("c"), deeper__c=PER_SITE, d=PER_SITE)
    assert list(read_folder(folder)) == ["c", "b", "a", "d"]


def test_queries_that_read_each_other_are_refused(tmp_path: Path) -> None:
    over = "SELECT max(n) AS top FROM {} [RANGE 1 hour SLIDE 1 hour]"
    with pytest.raises(SettingError, match="a -> b -> a"):
        read_folder(written(tmp_path, a=over.format("b"), b=over.format("a")))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="have the same name"):
        read_folder(written(tmp_path, a=PER_SITE, deeper__a=PER_SITE))


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not a folder"):
        read_folder(tmp_path / "missing")
