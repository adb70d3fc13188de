"""The benchmark: a trading hour, workloads as data files, competitors, and bars to clear."""
