"""Quick start: register a query, push rows, read final results and late rows."""

import transom

with transom.Engine(backend="local") as engine:  # transom.Engine() runs on Spark
    bids = engine.feed("bids", "site int, price double, ts timestamp", time="ts", slack="1 minute")
    mean = engine.register(
        "SELECT site, avg(price) AS mean FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
    )

    bids.push([(1, 10.0, "2013-01-01 12:00:05"), (1, 14.0, "2013-01-01 12:03:10")])
    engine.step()  # the watermark is now 12:02:10, a minute behind the latest bid
    bids.push([(1, 12.0, "2013-01-01 12:01:30"), (2, 99.0, "2013-01-01 11:58:00")])
    engine.drain()  # no more bids: every window closes

    for row in mean.results().to_pylist():
        print(f"{row['window_start']:%H:%M} to {row['window_end']:%H:%M}  site {row['site']}  {row['mean']}")
    for window in mean.late().to_pylist():
        print(f"{window['window_start']:%H:%M} to {window['window_end']:%H:%M}  missed {window['late']}")
