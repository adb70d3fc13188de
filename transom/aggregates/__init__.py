"""The algebra of aggregation and the table of SQL's aggregate functions."""

# The built-in functions are in the table as soon as any module of this package is imported.
from transom.aggregates import functions as functions
