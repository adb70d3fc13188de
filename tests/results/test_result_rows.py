"""From a window's aggregates to what a user sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.plan.bids import SCALARS, bound, compiled
from transom.elements import Kind
from transom.results.result_rows import LoweredWindows, Moment, finish, result_schema
from transom.windows.arrivals import Arrivals
from transom.windows.intervals import IntervalSet

BRACKET = "[RANGE 10 SLIDE 5 WATTR seq]"


class Counting:
    """The oracle's scalars, and how often they were asked to compute something."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []

    def types(self, *args: Any) -> Any:
        return SCALARS.types(*args)

    def project(self, table: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        self.asked.append(expressions)
        return SCALARS.project(table, expressions)


def lowered(
    text: str, name: str, *rows: tuple[Any, ...], unseen: IntervalSet = IntervalSet(), partial: bool = False
) -> LoweredWindows:
    """Windows (end, key, count, sum) of a query that groups by site and has two aggregates."""
    table = pa.table(
        {
            "k0": pa.array([key for _, key, _, _ in rows], pa.int32()),
            "a0": pa.array([count for _, _, count, _ in rows], pa.int64()),
            "a1": pa.array([total for _, _, _, total in rows], pa.float64()),
            "window_start": pa.array([end - 10 for end, *_ in rows], pa.int64()),
            "window_end": pa.array([end for end, *_ in rows], pa.int64()),
            "rows": pa.array([count for _, _, count, _ in rows], pa.int64()),
        }
    )
    which = np.zeros(len(rows), np.int64)
    return LoweredWindows([compiled(text, name)], which, table, [unseen], [partial])


def together(*parts: LoweredWindows) -> LoweredWindows:
    """Queries of one shape, as they are finished: in one table."""
    which = [part.which + i for i, part in enumerate(parts)]
    return LoweredWindows(
        [part.queries[0] for part in parts],
        np.concatenate(which),
        pa.concat_tables([part.table for part in parts]),
        [part.unseen[0] for part in parts],
        [part.partial[0] for part in parts],
    )


def select(items: str, having: str = "") -> str:
    return f"SELECT {items} FROM bids {BRACKET} GROUP BY site {having}"


def test_a_result_has_its_window_its_items_and_what_is_said_about_it() -> None:
    one = lowered(select("site, count(*) AS n, sum(price) AS p"), "q", (15, 3, 2, 7.5))
    one = replace(one, arrivals=[Arrivals(((4, 6, 2_000_000), (6, 20, 5_000_000)))])
    made = datetime.fromtimestamp(9, UTC)
    assert finish([one], Moment(4, Kind.EARLY, 9_000_000), SCALARS)["q"].to_pylist() == [
        {"window_start": 5, "window_end": 15, "site": 3, "n": 2, "p": 7.5,
         "kind": "early", "complete": True, "rows": 2, "late": 0, "batch": 4, "made": made, "latency": 7.0},
    ]  # fmt: skip


def test_having_keeps_what_is_true_and_drops_false_and_null() -> None:
    text = select("site, count(*) AS n, sum(price) AS p", "HAVING sum(price) > 5")
    one = lowered(text, "q", (15, 1, 2, 7.5), (15, 2, 2, 5.0), (15, 3, 1, None))
    assert finish([one], Moment(1), SCALARS)["q"]["site"].to_pylist() == [1]


def test_a_query_of_which_nothing_is_left_has_no_results() -> None:
    text = select("count(*) AS n, sum(price) AS p", "HAVING n > 100")
    assert finish([lowered(text, "q", (15, 1, 2, 7.5))], Moment(1), SCALARS) == {}


def test_expressions_of_queries_alike_are_computed_once() -> None:
    text, other = select("count(*) + 1 AS x, sum(price)"), select("count(*) + 2 AS x, sum(price)")
    plain = select("count(*), sum(price)")
    scalars = Counting()
    found = finish(
        [
            together(
                lowered(text, "one", (15, 1, 2, 0.0), (20, 1, 3, 0.0)),
                lowered(text, "two", (15, 1, 5, 0.0)),
            ),
            lowered(plain, "plain", (15, 1, 2, 0.0)),
            lowered(other, "other", (15, 1, 9, 0.0)),
        ],
        Moment(1),
        scalars,
    )
    assert {name: table["x"].to_pylist() for name, table in found.items() if name != "plain"} == {
        "one": [3, 4],
        "two": [6],
        "other": [11],
    }
    (asked,) = scalars.asked  # a question costs a job on Spark
    assert len(asked) == 2, "one expression for the two alike, one for the other, none for plain columns"


# --- windows seen in part --------------------------------------------------------------------
#
#     0    5    10   15   20   25
#     [---------)                     missed in part
#          [---------)                missed in part
#               [---------)           seen whole
#     ========|8  accepted before the query joined


@pytest.mark.parametrize(
    ("partial", "expected"),
    [
        pytest.param(False, [(20, True)], id="windows seen in part are not reported"),
        pytest.param(True, [(10, False), (15, False), (20, True)], id="on request they are, and say so"),
    ],
)
def test_windows_that_held_rows_before_the_query_joined(
    partial: bool, expected: list[tuple[int, bool]]
) -> None:
    rows = [(10, 1, 1, 0.0), (15, 1, 1, 0.0), (20, 1, 1, 0.0)]
    unseen = IntervalSet.of((0, 8))
    one = lowered(select("count(*), sum(price)"), "q", *rows, unseen=unseen, partial=partial)
    table = finish([one], Moment(1), SCALARS)["q"]
    assert list(zip(table["window_end"].to_pylist(), table["complete"].to_pylist(), strict=True)) == expected


def test_what_one_query_missed_is_no_matter_to_another_of_its_shape() -> None:
    text = select("count(*), sum(price)", "HAVING count(*) > 1")
    rows = [(10, 1, 5, 0.0), (20, 1, 5, 0.0), (20, 2, 1, 0.0)]
    missed = IntervalSet.of((0, 8))
    found = finish(
        [
            together(
                lowered(text, "from the start", *rows),
                lowered(text, "late", *rows, unseen=missed),
                lowered(text, "late and curious", *rows, unseen=missed, partial=True),
                lowered(text, "nothing", (10, 1, 5, 0.0), unseen=missed),
            )
        ],
        Moment(1),
        SCALARS,
    )
    ends = {
        name: list(zip(table["window_end"].to_pylist(), table["complete"].to_pylist(), strict=True))
        for name, table in found.items()
    }
    assert ends == {
        "from the start": [(10, True), (20, True)],
        "late": [(20, True)],
        "late and curious": [(10, False), (20, True)],
    }
    assert (len(found), found.rows) == (3, 5)


@pytest.mark.parametrize(
    ("items", "names"),
    [
        pytest.param("count(*) AS n", ["window_start", "window_end", "n", "kind", "complete", "rows", "late", "batch",
                      "made", "latency"],
                     id="as they are called when nobody else is"),
        pytest.param("count(*) AS rows, max(seq) AS batch",
                     ["window_start", "window_end", "rows", "batch",
                      "kind", "complete", "transom_rows", "late", "transom_batch", "made", "latency"],
                     id="a system column steps aside"),
        pytest.param("max(seq) AS window_end",
                     ["window_start", "transom_window_end", "window_end", "kind", "complete", "rows", "late", "batch",
                      "made", "latency"],
                     id="so do the window's ends"),
    ],
)  # fmt: skip
def test_names_of_the_columns(items: str, names: list[str]) -> None:
    assert result_schema(bound(f"SELECT {items} FROM bids {BRACKET}")).names == names


def test_times_of_windows_have_the_type_of_their_clock() -> None:
    assert result_schema(bound("SELECT count(*) FROM bids [RANGE 1 minute SLIDE 1 minute]")).field(
        0
    ).type == pa.timestamp("us", "UTC")
    assert result_schema(bound("SELECT count(*) FROM bids [ROWS 5 SLIDE 5]")).field(0).type == pa.int64()


@pytest.mark.parametrize("few", [0, 10**6])
def test_evaluating_all_together_or_one_by_one_gives_the_same(few: int) -> None:
    items = ["count(*) * 2 AS x, sum(price)", "count(*) AS n, concat('`a0`', site) AS x, sum(price)"]
    members = [
        lowered(select(text), f"q{i}", (15, 7, 2, 0.5), (20, 8, 3, 1.5)) for i, text in enumerate(items)
    ]
    found = finish(members, Moment(1), SCALARS, few)
    assert found["q0"]["x"].to_pylist() == [4, 6]
    assert found["q1"]["x"].to_pylist() == ["`a0`7", "`a0`8"]
