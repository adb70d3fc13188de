"""The client of a running server; it needs neither Spark nor FastAPI."""
