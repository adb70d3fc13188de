"""The dashboard: a NiceGUI web application that shows streams, queries and results, and works offline."""

from transom.dashboard.routes import mount

__all__ = ["mount"]
