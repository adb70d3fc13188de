"""The benchmark: an hour of trades, workloads as data files, competitors, and bars (targets)."""
