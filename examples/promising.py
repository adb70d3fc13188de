"""Promising tuples: a query with a preference says what to spend a limited budget on."""

import transom

SUMMARY = "CREATE SUMMARY {0}_items ON {0}(item) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
SOLD_IN_BOTH = """
    SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item
    WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)
    WINDOW '1 minute' BUDGET 300 PROBES
"""

with transom.Engine() as engine:
    stores = {name: engine.feed(name, "item int, ts timestamp", time="ts") for name in ("store1", "store2")}
    for name in stores:
        engine.execute(SUMMARY.format(name))
    pairs = engine.register(SOLD_IN_BOTH)

    for second in range(0, 30, 10):
        for feed in stores.values():  # a third of all sales are of item 7
            feed.push([(7 if n % 3 == 0 else n, f"2013-01-01 12:00:{second + n // 6:02}") for n in range(60)])
            engine.step()

    def report():
        items = pairs.results()["item"].to_pylist()
        often, share = items.count(7), pairs.coverage().share
        print(f"item 7: {often} pairs, others: {len(items) - often}; about {share:.0%} of all")

    report()
    while engine.step():  # no new rows: deferred probes resume
        pass
    report()
