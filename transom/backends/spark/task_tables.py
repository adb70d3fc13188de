"""Static tables on their way to tasks: each version is sent once, and kept by the worker processes."""

from __future__ import annotations

import uuid
from collections import OrderedDict

import pyarrow as pa
from pyspark.sql import SparkSession

from transom.backends.arrow_frame import ArrowFrame
from transom.backends.base import Frame, TableJoin
from transom.backends.spark.file_tasks import TableParcel

_KEPT_TABLES = 16


class TableShipper:
    """Sends static tables to tasks. Tables that are too large for the driver stay with Spark."""

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self._sent: OrderedDict[int, tuple[Frame, TableParcel]] = OrderedDict()

    def ship(self, table: TableJoin) -> TableParcel | None:
        """A table for tasks; None if it is not on the driver, or no column is compared for equality."""
        frame = table.frame
        if not table.join.keys or not isinstance(frame, ArrowFrame):
            return None
        if id(frame) not in self._sent:
            self._sent[id(frame)] = frame, self._parcel(frame.table)  # held, so that its id stays its own
            if len(self._sent) > _KEPT_TABLES:
                _, (_, old) = self._sent.popitem(last=False)
                old.packed.destroy()
        self._sent.move_to_end(id(frame))
        return self._sent[id(frame)][1]

    def _parcel(self, rows: pa.Table) -> TableParcel:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        packed = self.spark.sparkContext.broadcast(sink.getvalue().to_pybytes())
        return TableParcel(uuid.uuid4().hex, packed)
