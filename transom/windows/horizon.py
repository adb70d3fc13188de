"""The future: which rows of a batch are too far ahead of the stream to be believed."""

from __future__ import annotations

from transom.windows.profile import Profile


def horizon_limit(profile: Profile, high: int | None, horizon: int | None) -> int | None:
    """The greatest time of a batch that is accepted, or None when there is no limit.

    The stream reaches upward from where it was (`high`), from row to row, over gaps of at most the
    horizon; what lies beyond a larger gap is rejected. If more than half of the batch lies beyond,
    the stream jumped (a weekend), and is followed from the batch's median. On a first batch there is
    nothing to be ahead of but the batch itself: the median again.

            high         horizon
      -------|-- . .. . ---------|                  . . . .. .      most are beyond: followed
      -------|-- . .. . ... .. --|                        .         one is: rejected
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
