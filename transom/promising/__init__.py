"""Promising tuples: under a budget, summaries of a stream guide a query to the tuples that it prefers.

Reading order (numbers are sections of the paper):

- `summary_protocol`, `histograms`, `sketches`, `summary_kinds`: summaries of cells (3.2).
- `zones`, `step_summaries`, `pyramid`, `representation`: the representation of a stream (3).
- `tuples`, `batch_tuples`: the kept tuples, and the tuples of a batch.
- `regions`, `joins`, `selections`, `probes`: promising regions and the probes in them (4).
- `probe_planner`, `state_updates`, `answers`, `sample_estimates`: which probes a budget is spent on, and their results.
- `structure_choice`, `structure_review`: which structure gives the most output (5.1).
- `execution`, `partitioned_tuples`: the steps of a batch, on the driver or in executor tasks.

Other packages use `Promising` (`execution`), `Pace` (`pace`), `BatchArrival` (`batch_tuples`), `with_registered`
(`state_updates`) and the schema of results (`answers`); the state holds `Representation`, `Regions` and
`KeptTuples`.
"""
