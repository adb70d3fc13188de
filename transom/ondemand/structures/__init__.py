"""Structures for on-demand lookups: each keeps the tuples of one attribute and answers any window that ends now.

Reading order: `runs` (the data and the `Structure` interface), `build_runs`, `group_index` (few groups among
many), `window_entries`, `tiers` (how runs are merged over time); then one structure per module: `values` (a
plain scan), `prefix_sums`, `block_tree`, `staircase`, `timegram` (with `buckets` and `answer_intervals`),
`ordered_sharing` (with `grouped_ordered_sharing`). `exact_structure` chooses the exact structure for an aggregate.
"""
