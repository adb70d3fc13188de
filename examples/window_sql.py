"""Window SQL: sessions of each user, and a comparison of each hour with the hour before."""

import transom

with transom.Engine() as engine:
    clicks = engine.feed("clicks", "user string, page string, ts timestamp", time="ts", slack="5 minutes")
    visits = engine.register(
        "SELECT user, count(*) AS pages, last(page) AS left_from FROM clicks [SESSION 30 minutes] GROUP BY user"
    )
    trend = engine.register(
        "SELECT count(*) AS n, LAG(n) OVER WINDOWS AS earlier FROM clicks [RANGE 1 hour SLIDE 1 hour]"
    )

    clicks.push([("ann", "home", "2013-01-01 12:00:00"), ("bob", "home", "2013-01-01 12:10:00")])
    clicks.push([("ann", "cart", "2013-01-01 12:45:00"), ("ann", "shop", "2013-01-01 12:20:00")])
    engine.step()
    clicks.push([("bob", "help", "2013-01-01 13:30:00")])
    engine.drain()

    for row in visits.results().to_pylist():
        visit = f"{row['window_start']:%H:%M} to {row['window_end']:%H:%M}"
        print(f"{visit}  {row['user']}: pages {row['pages']}, left from {row['left_from']}")
    for row in trend.results().to_pylist():
        print(f"until {row['window_end']:%H:%M}  clicks {row['n']}, an hour earlier {row['earlier']}")
