"""Columns of input rows that queries can't name."""

CORRUPT = "_corrupt_record"  # the text of a row that could not be parsed
TIME_TEXT = "_time_text"  # what a time column of text held before it became a time
HIDDEN = (CORRUPT, TIME_TEXT)
