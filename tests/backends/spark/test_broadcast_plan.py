"""Plans on their way to tasks."""

from __future__ import annotations

import pickle

from tests.plan.bids import compiled, planned
from transom.backends.spark.broadcast_plan import PackedInterests


def test_interests_are_unpacked_when_a_task_reads_them() -> None:
    texts = [f"SELECT count(*) FROM bids [RANGE 10 SLIDE 10 WATTR seq] WHERE site > {i}" for i in range(3)]
    interests = planned(*(compiled(text, f"q{i}") for i, text in enumerate(texts))).interests
    packed: PackedInterests = pickle.loads(pickle.dumps(PackedInterests(interests)))
    assert len(packed) == 3
    assert "_unpacked" not in vars(packed)
    assert tuple(packed) == interests
    assert (packed[1], packed[1:]) == (interests[1], interests[1:])
