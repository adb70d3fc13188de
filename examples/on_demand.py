"""On-demand queries: look up the answer for any window that ends now."""

import transom

with transom.Engine() as engine:
    bids = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
    top = engine.register("SELECT max(price) AS top, count(*) AS n FROM bids [RANGE 10 minutes]")

    bids.push([(1, 14.0, "2013-01-01 12:00:05"), (2, 10.0, "2013-01-01 12:06:10")])
    bids.push([(1, 12.0, "2013-01-01 12:09:30")])
    engine.step()

    for lookup in (
        top.lookup(),  # the last ten minutes, up to the newest bid
        top.lookup(range="5 minutes"),
        engine.lookup("SELECT count(*) AS n FROM bids [RANGE 1 minute]"),  # never registered
    ):
        print(lookup.drop_columns(["window_start", "window_end", "complete", "batch", "made"]).to_pylist())
