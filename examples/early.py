"""Early results: ask for the current value of a window before it closes."""

import transom

with transom.Engine() as engine:
    bids = engine.feed("bids", "site int, price double, ts timestamp", time="ts", slack="1 minute")
    total = engine.register(
        "SELECT sum(price) AS total FROM bids [RANGE 10 minutes SLIDE 10 minutes] EMIT EARLY ON DEMAND"
    )

    bids.push([(1, 10.0, "2013-01-01 12:00:05"), (2, 14.0, "2013-01-01 12:06:10")])
    engine.step()
    total.prod()  # answered at once, from what has arrived

    bids.push([(1, 12.0, "2013-01-01 12:09:30")])
    engine.drain()

    for row in total.results().to_pylist():
        print(f"until {row['window_end']:%H:%M}  {row['kind']}  {row['total']} from {row['rows']} bids")
