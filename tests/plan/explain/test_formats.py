"""EXPLAIN for programs: the keys of its JSON, and the shape of its drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.plan.bids import compiled
from tests.plan.explain.test_explain import over_price, plan, running
from transom.plan.explain import Explanation, mermaid
from transom.plan.explain.mermaid import FAMILIES, SELECTIONS, label
from transom.state.state import Work

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "explain.md"
NODE = r"\w+(?:\(\[\"[^\"]*\"\]\)|\[\"[^\"]*\"\]|\{\{\"[^\"]*\"\}\})"


def several(families: int, selections: int) -> Explanation:
    queries = [
        compiled(
            "SELECT count(*) FROM bids [RANGE 2 minutes SLIDE 1 minute] "
            f"WHERE price > {constant} AND kind = 'k{family} \"q\" <b> #1'",
            f"f{family}c{constant}",
        )
        for family in range(families)
        for constant in range(selections)
    ]
    return plan(*queries, state=running(*queries, work=Work(10, 10, 100, 100)))


def keys_of(value: object) -> set[str]:
    if isinstance(value, dict):
        named = {name for name in value if name not in ("suspended",)}
        return named.union(*(keys_of(part) for part in value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_json_carries_everything() -> None:
    queries = [over_price("a", 10), over_price("b", 10), over_price("c", 20)]
    found = json.loads(plan(*queries, state=running(*queries, work=Work(10, 10, 100, 100))).json())
    (stream,) = found["streams"]
    (family,) = stream["families"]
    assert (found["batch_id"], found["strategy"], stream["name"], stream["queries"]) == (
        7,
        "shared_paired",
        "bids",
        3,
    )
    assert stream["work"] == {
        "partials": 10,
        "finals": 10,
        "unshared_partials": 100,
        "unshared_finals": 100,
        "ratio": 10.0,
    }
    assert (family["kind"], family["scalar"], family["constants"], family["fragments"]) == (
        "range",
        "`price`",
        2,
        4,
    )
    first = family["selections"][0]
    assert [query["name"] for query in first["queries"]] == ["a", "b"]
    assert first["queries"][0]["window"] == {
        "text": "range 4 minutes, slide 1 minute",
        "range": 240_000_000,
        "slide": 60_000_000,
        "phase": 0,
    }
    assert first["keeps"][1] == {
        "slot": "count(`price`)",
        "readers": [{"query": name, "aggregate": "avg(`price`)"} for name in "ab"],
    }
    assert first["slicing"]["edges"] == 60 and len(first["slicing"]["next_edges"]) == 5


def test_every_key_is_in_the_reference() -> None:
    text = REFERENCE.read_text()
    missing = {key for key in keys_of(json.loads(several(2, 2).json())) if f"`{key}`" not in text}
    assert missing == set()


def test_one_query_of_a_plan_is_its_selection_alone() -> None:
    found = several(2, 3).only("f1c2")
    ((_, selection),) = found.streams[0].selections()
    assert [query.name for query in selection.queries] == ["f1c2"]
    assert several(1, 1).only("absent").streams == ()


def test_a_drawing_leads_from_the_stream_to_the_queries() -> None:
    lines = mermaid(several(2, 2)).splitlines()
    assert lines[0] == "flowchart LR"
    assert re.fullmatch(rf"  {NODE}", lines[1])
    for line in lines[2:]:
        assert re.fullmatch(rf"  \w+ --> {NODE}", line), line
    drawn = {re.match(r" *(?:\w+ --> )?(\w+)", line)[1] for line in lines[1:]}  # type: ignore[index]
    origins = {line.split(" --> ")[0].strip() for line in lines[2:]}
    assert origins <= drawn and len(drawn) == len(lines) - 1
    assert sum("f0c0" in line for line in lines) == 1


def test_a_drawing_of_many_queries_stays_readable() -> None:
    large = several(9, 12)
    lines = mermaid(large).splitlines()
    assert len(lines) == 1 + 1 + FAMILIES * (1 + 2 * SELECTIONS + 1) + 1
    assert any("3 more families" in line for line in lines) and any(
        "8 more selections" in line for line in lines
    )
    assert len(mermaid(large, verbose=True).splitlines()) == 2 + 9 * (1 + 2 * 12)


def test_nothing_in_a_label_can_end_it() -> None:
    shown = label('a "quoted" `name`', "x < 3 && y > 4 # not a comment")
    assert shown == '"a #quot;quoted#quot; name<br/>x #lt; 3 #amp;#amp; y #gt; 4 #35; not a comment"'
    assert len(label("x" * 500)) < 80
