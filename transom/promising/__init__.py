"""Promising tuples: summaries of a stream that lead a query to the tuples it prefers, under a budget."""
