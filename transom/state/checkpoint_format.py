"""The version of the checkpoint format: every snapshot and every log entry carries it."""

from __future__ import annotations

from transom.errors import StateError

# Version 6 stores ids and field names that no Python name leaks into; version 7 adds the planner's decisions.
# Version 8: every file has a checksum, a commit lists the files of late and rejected rows, the state has the
# accounts of queries, and results have the column `late`.
# Version 9: queries and selections are tables, not JSON; summaries say which tuples are late.
# Version 10: parts that few batches change are compressed by themselves; floors and times of rows are tables.
# Version 11: views; the rows that joins of streams keep; what LAG and EMIT EMPTY remember of past windows.
FORMAT_VERSION = 11


def check_format(version: object) -> None:
    """Refuse a file of another format version.

    >>> check_format(7)
    Traceback (most recent call last):
    transom.errors.StateError: the checkpoint has format 7, this version of transom reads format 11: continue it \
with the version of transom that wrote it, or start with a new checkpoint directory
    """
    if version != FORMAT_VERSION:
        raise StateError(
            f"the checkpoint has format {version}, this version of transom reads format {FORMAT_VERSION}: "
            "continue it with the version of transom that wrote it, or start with a new checkpoint directory"
        )
