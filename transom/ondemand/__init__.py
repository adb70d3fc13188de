"""On-demand queries: answered at lookup time from stores of recent tuples, not emitted when windows close.

Reading order:

- `structures`: how the tuples of one attribute are kept so that any window that ends now can be answered.
- `store_specs`: which stores a query needs, and which queries share them (`StoreSet`, `store_sets`).
- `stores`: the life of stores over batches (`store_inputs`, `fill_stores`, `lookup_end`).
- `finer_stores`: how stores of finer groups answer a query (`FinerStores`, `finer_stores`).
- `lookup`: from stores to a result table (`Lookup`, `look_up`, `lookup_result`, `lookup_schema`).
- `cache`: answers that OrderedSharing remembers between lookups (`LookupCache`).
- `partitioned_stores`: stores with too many groups for the driver, read and merged by executor tasks.

Other packages use the names in parentheses.
"""
