"""The numbers by which the planner decides: one place to read them, and one object to pass others in a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Thresholds of the planner's passes; the defaults were measured, see docs/decisions."""

    # Placement. Selections over the same groups move from the driver to the executors together.
    driver_rows: int = 1_000_000  # most rows on the driver before they move
    driver_groups: int = 50_000  # most groups that one task may send to the driver
    batches_to_limit: int = 4  # a batch that brings this part of `driver_rows` moves them at once
    rows_per_store_group: int = 20  # a group of a store weighs as much as so many rows of slices
    shard_files: int = 32  # most shards over the same groups before small ones are compacted
    store_files: int = 16  # most files of an on-demand store before they are merged
    driver_tuples: int = 1_000_000  # most tuples of a summary on the driver before they move
    tuple_files: int = 16  # most files of a summary's tuples before they are merged

    # Re-sharing. A plan changes when the other one costs less than this part of it: rates vary.
    clearly_better: float = 0.5

    # Families. Signatures of more selections than this are mostly as many as tuples.
    signature_members: int = 64
    batches_apart: int = 64  # for so many batches selections stay out of a signature family that did not pay
