"""A program with a query that ends its process: `python -m tests.runtime.deadly_query CHECKPOINT PLACE`.

The query at PLACE of `QUERIES` kills the process with the third batch; -1 is a run without it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import transom

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
QUERIES, BATCHES, DEADLY_BATCH = 8, 5, 2
PROCESS_ENDS = 2


def deadly(value: int) -> int:
    if value == DEADLY_BATCH:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def run(checkpoint: str, place: int) -> dict[str, object]:
    """Continue the program until all batches are done: the answers and the suspended queries."""
    limits = transom.Limits(process_ends=PROCESS_ENDS)
    with transom.Engine(checkpoint=checkpoint, backend="local", sync=False, limits=limits) as engine:
        engine.udf("deadly", deadly, "int")
        feed = engine.feed("s", "v int, ts timestamp", time="ts")
        names = [f"q{i}" for i in range(QUERIES)]
        for i, name in enumerate(names):
            value = "deadly(v)" if i == place else "v"
            engine.register(f"SELECT sum({value} + {i}) AS n FROM s {WINDOW}", name)
        engine.step()  # a batch that an earlier process began
        for minute in range(engine.progress().batch_id, BATCHES):
            feed.push([(minute, f"2013-01-01 12:{minute:02d}:{second:02d}") for second in range(3)])
            engine.step()
        answers = {name: engine.query(name).results()["n"].to_pylist() for name in names}
        return {"answers": answers, "suspended": dict(engine.progress().suspended)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
