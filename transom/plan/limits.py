"""The numbers by which the planner and the kernel decide: one place to read them, one object to pass others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Thresholds of the planner's passes and of the kernel, and the most that a query may cost.

    The thresholds were measured, see docs/decisions.
    """

    # Registration. A query or a summary beyond one of these is refused with a CostError.
    longest_window: int = 1 << 53  # RANGE, SLIDE or ROWS: in microseconds 285 years
    session_gap: int = 31 * 86_400_000_000  # of SESSION: in microseconds 31 days
    rows_of_key: int = 10_000  # ROWS with PARTITION BY
    windows_per_row: int = 100_000  # RANGE / SLIDE: one day every second has 86,400
    group_bytes: int = 1 << 30  # of the slices of one group
    select_items: int = 1_000
    expression_length: int = 100_000  # characters of all expressions of a query
    text_bytes: int = 16 << 20  # the longest text that an expression makes of texts of 1,000 bytes
    summary_bytes: int = 1 << 30  # of the cells of a summary
    stream_expressions: int = 10_000  # of all queries of a stream: on Spark each takes about 3 ms a batch

    # Joins of two streams. A query with a longer time bound is refused; the queries of a join beyond the other two
    # limits are suspended.
    join_bound: int = (
        31 * 86_400_000_000
    )  # the time for which rows can wait for partners: in microseconds 31 days
    joined_pairs: int = 5_000_000  # of a join in a batch
    join_rows: int = 20_000_000  # that a join keeps of both streams

    # Queries without a window. One with more results is suspended.
    row_results: int = 5_000_000  # of a query in a batch

    # Results. A query with a longer list or text in a group of a window is suspended.
    collected_values: int = 10_000  # of collect_list, collect_set, array_agg, string_agg and listagg

    # Queries that look at earlier windows (LAG, EMIT EMPTY). One with more is suspended.
    correctable_results: int = 1_000_000  # results that a query keeps for EMIT CORRECTIONS
    past_windows: int = 1_000_000  # rows remembered of past windows and groups; empty windows in a batch

    # Backfills. Between live batches, retained rows are replayed for new queries for this part of a batch's time.
    backfill_share: float = 0.1
    backfill_results: int = 5_000_000  # of a query: they wait in memory until it takes part
    sealed_selections: int = 16  # of a stream that retains rows: most selections whose sealed slices are kept
    lookup_rows: int = 10_000_000  # most retained rows that a lookup of the past reads

    # Isolation.
    process_ends: int = 8  # of processes in one batch before the query that ends them is looked for

    # Placement. Selections over the same groups move from the driver to the executors together.
    driver_rows: int = 1_000_000  # most rows on the driver before they move
    pushed_rows: int = 50_000  # most rows on the driver that are aggregated there, without tasks
    # Most rows of a static table that the driver keeps, to join rows there and in tasks.
    table_rows: int = 100_000
    # Most late (or rejected) rows of a task that come with its outcome, without another job.
    listed_rows: int = 10_000
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
    # A signature family does not pay with fewer tuples for each fragment on average.
    tuples_per_signature: int = 2
    signature_tuples: int = 1024  # fewest tuples of a task by which a signature family is judged
    batches_apart: int = 64  # for so many batches selections stay out of a signature family that did not pay

    # Generations. Selections that were opened lately are planned apart: at most so many, if there are so many times as
    # many selections.
    young_selections: int = 64
    old_per_young: int = 8

    # Grids. Selections whose predicates compare the same scalars with constants are boxes of one grid.
    grid_axes: int = 4  # most scalars
    grid_boxes: int = 64  # most boxes of one selection
    range_members: int = 8  # a range family of fewer selections gives way to a grid of many
    grids_per_range: int = 4  # that is, of so many times its selections

    # Structures of summaries with STRUCTURE auto. Reviews are apart by the summary's age, within these bounds.
    first_review: int = 4  # batches until the first review
    longest_review: int = 256  # most batches between two reviews
    review_tuples: int = 2_000  # tuples of a summary on which a review tries the structures

    # Roll-ups. Cells are used if they have so many tuples on average; merging a sketch costs dozens of updates.
    tuples_per_cell: int = 4
    tuples_per_sketch: int = 64
    cell_sample: int = 1 << 13  # tuples from which the number of cells is estimated first

    # Few rows. Families with at most so many pairs of a row and a box of a selection are folded together.
    matrix_cells: int = 1 << 16

    # Folding. Cells are a dense array if that is not too large; otherwise pairs of a cell and a member.
    dense_cells: int = 1 << 22  # most cells of an array
    dense_cells_per_tuple: int = 4
    # Most members of a range family that share an array; None: as many as pay.
    block_members: int | None = None
    grid_fold: str | None = None  # how grids are folded: by "cells" or by "members"; None: as it pays
    short_range: int = 8  # ranges of at most so many fragments are added up one by one
    pairs: int = 1 << 22  # most pairs that are expanded at once
    # With more edges than this and `spare_edges`, slices between tuples are not listed.
    edges_per_tuple: int = 8
    spare_edges: int = 1 << 16

    def is_too_fragmented(self, fragments: int, tuples: int) -> bool:
        """Whether a signature family does not pay for a task with so many fragments and tuples."""
        return fragments * self.tuples_per_signature > tuples >= self.signature_tuples
