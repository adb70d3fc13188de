"""The Python client of a running server: `transom.connect(url)`. It needs neither Spark nor the engine."""
