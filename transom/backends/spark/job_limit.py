"""A limit of time for the Spark jobs of a thread: they are cancelled when it has passed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from transom.errors import DeadlineError

GROUP, DESCRIPTION, INTERRUPT = "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"
EXCLUDED = "spark.sql.optimizer.excludedRules"
# It evaluates expressions over small tables in the driver, outside of any job that could be cancelled.
IN_DRIVER = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


@contextmanager
def job_limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel the jobs of this thread, and raise DeadlineError, if the block takes longer."""
    context, group = spark.sparkContext, f"transom-{uuid.uuid4().hex}"
    before = {name: context.getLocalProperty(name) for name in (GROUP, DESCRIPTION, INTERRUPT)}
    rules = spark.conf.get(EXCLUDED, "") or ""
    is_over = threading.Event()
    has_fired = threading.Event()

    def cancel() -> None:
        has_fired.set()
        while not is_over.wait(0.5):  # a new job may have begun meanwhile
            context.cancelJobGroup(group)

    timer = threading.Timer(seconds, cancel)
    timer.daemon = True
    context.setJobGroup(group, "a batch of transom", interruptOnCancel=True)
    if IN_DRIVER not in rules:
        spark.conf.set(EXCLUDED, f"{rules},{IN_DRIVER}".strip(","))
    timer.start()
    try:
        yield
    except Exception as error:
        if has_fired.is_set():
            raise DeadlineError(f"it takes longer than the deadline of {seconds:g} s") from error
        raise
    finally:
        is_over.set()
        timer.cancel()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it
