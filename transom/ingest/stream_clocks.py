"""How the clocks of a stream's partitions or groups go on with a batch, and what they close."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from transom.ingest.streams import Stream
from transom.kernel.aggregate import Outcome
from transom.state.batch_intent import BatchIntent
from transom.state.state import State
from transom.windows.intervals import LOWEST
from transom.windows.partition_clocks import PartitionClocks
from transom.windows.watermark import Watermark


def learns_delays(stream: Stream, sidelined: Collection[str]) -> bool:
    """Whether the delays of a batch's rows are learned: rows that were sidelined come late because of the engine."""
    return stream.rules.learned is not None and not sidelined


def clocks_after(stream: Stream, intent: BatchIntent, brought: Outcome) -> PartitionClocks | None:
    """The clocks of a stream's partitions after a batch that brought rows of some; None if it did not."""
    rules, clocks = stream.rules, stream.partitions
    if not brought.partition_tops:
        return None
    clock, idle, since = intent.clock, rules.partition_idle, intent.resumed.get(stream.name, 0)
    forgettable = None
    if len(clocks.names) > rules.most_clocks // 2:  # there may be no room for all new ones
        watermark = clocks.watermark(clock, idle, since)
        forgettable = ~clocks.live(clock, idle, since) & (clocks.closed <= (watermark or LOWEST))
    tops, slack = brought.partition_tops, rules.clock_slack
    return clocks.after(tops, clock, slack, brought.delays, rules.most_clocks, forgettable)


def watermark_after(stream: Stream, intent: BatchIntent, after: PartitionClocks | None) -> Watermark | None:
    """What the clocks close after a batch; None if the stream has none of them."""
    rules = stream.rules
    if rules.partition is None:
        return None
    clocks = after or stream.partitions
    clock, idle, since = intent.clock, rules.partition_idle, intent.resumed.get(stream.name, 0)
    slack = rules.slack or 0
    if rules.learned is not None:
        live = clocks.live(clock, idle, since)
        slack = int(clocks.slacks(rules.learned)[live].max(initial=0)) if live.any() else slack
    groups = None
    if rules.group is not None:
        groups = clocks.group_closings(rules.group, stream.columns[rules.group])
    return Watermark(clocks.watermark(clock, idle, since), slack, groups)


def released_streams(
    streams: Mapping[str, Stream], state: State, clock: int, resumed: Mapping[str, int]
) -> list[str]:
    """The streams whose watermark advances without new rows: a partition that held it back has become idle."""
    released = []
    for name, stream in streams.items():
        rules, clocks = stream.rules, stream.partitions
        if rules.partition is None or rules.partition_idle is None or state.stream(name).sidelined:
            continue
        until = clocks.watermark(clock, rules.partition_idle, resumed.get(name, 0))
        closed = state.stream(name).clock(rules.clock).closed.watermark()
        if until is not None and (closed is None or closed < until):
            released.append(name)
    return released
