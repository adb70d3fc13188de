"""Progress as text and as plain values, without a running engine."""

from __future__ import annotations

import json
from dataclasses import replace

from transom.plan.explain import work_done
from transom.runtime.progress import OnDemand, Progress, Sharing, StoreProgress, StreamProgress
from transom.state.state import Work

BIDS = Sharing(6, 2, 4, {"range": 1}, 30, work_done(Work(100, 20, 600, 10)), work_done(Work(10, 2, 60, 1)))
ASKS = Sharing(2, 2, 1, {"range": 1, "alone": 1}, 5, work_done(Work(50, 0, 50, 0)))


def progress(**streams: Sharing) -> Progress:
    known = {
        name: StreamProgress(9, 8, 0, 1, 0, None, None, 3, True, sharing) for name, sharing in streams.items()
    }
    spent = {"planning": 0.01, "ingest": 0.2, "emit": 0.03, "commit": 0.004}
    return Progress(7, 0.25, 1_000, 0, 0, 8, {}, known, spent)


LOOKED_AT = OnDemand(
    12,
    {
        "groups": StoreProgress("bids", "the newest row", False, 90, 40, 40, 1, 28, lists_groups=True),
        "top": StoreProgress("bids", "max staircase of price", False, 90, 30, 30, 5, 72),
        "values": StoreProgress("bids", "values of price", True, 80, 20, 15, 60, 900),
    },
)


def test_streams_add_up() -> None:
    both = progress(bids=BIDS, asks=ASKS).sharing
    assert (both.queries, both.selections, both.most_queries, both.slices) == (8, 4, 4, 35)
    assert dict(both.families) == {"range": 2, "alone": 1}
    assert both.work == work_done(Work(150, 20, 650, 10)) and both.last_batch == BIDS.last_batch
    assert both.queries_per_selection == 2.0


def test_people_see_where_the_time_went_and_what_sharing_spared() -> None:
    assert str(progress(bids=BIDS)).splitlines() == [
        "batch 7, 0.250 s (planning 0.010, ingest 0.200, emit 0.030, commit 0.004), "
        "8 queries (0 suspended), state 1,000 bytes",
        "  bids: rows 9, counted 8, unwanted 0, late 1, rejected 0, watermark none, open windows 3",
        "    selections 2 (queries in each 3.0, at most 4), families: 1 range, slices 30; 100 partial "
        "(unshared: 600) and 20 final (unshared: 10) aggregations; unshared 5.1 times as many",
    ]


def test_a_stream_without_queries_says_nothing_of_sharing() -> None:
    shown = str(progress(idle=Sharing()))
    assert "selections" not in shown and Sharing().queries_per_selection == 0.0


def test_machines_get_plain_values() -> None:
    plain = json.loads(json.dumps(progress(bids=BIDS).as_dict()))
    own = plain["streams"]["bids"]
    assert own["sharing"]["last_batch"] == {
        "partials": 10,
        "finals": 2,
        "unshared_partials": 60,
        "unshared_finals": 1,
        "ratio": 61 / 12,
    }
    assert plain["spent"]["ingest"] == 0.2 and plain["sharing"]["queries_per_selection"] == 3.0


def test_a_lookup_counts_once_and_each_store_of_an_attribute_that_it_reads() -> None:
    assert (LOOKED_AT.lookups, LOOKED_AT.reads, LOOKED_AT.hits, LOOKED_AT.updates) == (40, 50, 45, 170)
    assert (LOOKED_AT.entries, LOOKED_AT.bytes) == (66, 1_000)


def test_on_demand_queries_are_one_line_and_none_without_them() -> None:
    shown = str(replace(progress(bids=BIDS), on_demand=LOOKED_AT)).splitlines()
    assert shown[-1] == (
        "  on demand: 12 queries over 3 stores, entries 66, bytes 1,000; updates 170, "
        "lookups 40, 45 of 50 reads without recalculation"
    )
    assert "on demand" not in str(progress(bids=BIDS))


def test_machines_get_every_store() -> None:
    plain = json.loads(json.dumps(replace(progress(bids=BIDS), on_demand=LOOKED_AT).as_dict()))["on_demand"]
    assert plain["queries"] == 12 and plain["lookups"] == 40 and plain["hits"] == 45
    assert plain["stores"]["values"] == {
        "stream": "bids",
        "keeps": "values of price",
        "on_executors": True,
        "updates": 80,
        "lookups": 20,
        "hits": 15,
        "entries": 60,
        "bytes": 900,
        "lists_groups": False,
    }
