"""The page: streams, queries and results for people to look at, on NiceGUI, with its own assets only."""

from transom.dashboard.routes import mount

__all__ = ["mount"]
