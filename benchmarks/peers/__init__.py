"""The competitors, each at its best: native Structured Streaming, one Spark SQL job, Polars.

Each returns the seconds it took and, on request, its answers, so that they can be compared.
"""

from benchmarks.peers.in_polars import in_polars
from benchmarks.peers.native import native
from benchmarks.peers.single_job import SingleJob

__all__ = ["SingleJob", "in_polars", "native"]
