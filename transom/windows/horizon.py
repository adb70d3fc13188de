"""The horizon: which rows of a batch are too far ahead of the stream to be accepted."""

from __future__ import annotations

from transom.windows.batch_profile import Profile


def horizon_limit(profile: Profile, high: int | None, horizon: int | None) -> int | None:
    """The greatest time of a batch that is accepted, or None when there is no limit.

    From the highest time so far (`high`), rows are accepted upward over gaps of at most the horizon; rows
    above a larger gap are rejected. If more than half of the batch lies beyond the horizon, the stream jumped
    (as over a weekend), and rows are accepted from the median of the batch upward. The first batch also
    starts from its median.

            high         horizon
      -------|-- . .. . ---------|                  . . . .. .      most rows are beyond: accepted
      -------|-- . .. . ... .. --|                        .         one row is: rejected
    """
    if horizon is None or not profile.count:
        return None
    start = high
    if high is None or 2 * profile.count_above(high + horizon) > profile.count:
        start = profile.median_run()[0]
    assert start is not None
    reach = start
    for low, top, _ in profile.runs:
        if low > reach + horizon:
            break
        reach = max(reach, top)
    return reach
