"""Columns of input rows that queries can't name."""

CORRUPT = "_corrupt_record"  # the text of a row that could not be parsed
TIME_TEXT = "_time_text"  # what a time column of text held before it became a time
SOURCE_PARTITION = "_source_partition"  # the partition of the source that a row came from
HIDDEN = (CORRUPT, TIME_TEXT, SOURCE_PARTITION)
