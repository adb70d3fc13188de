"""The service: an engine with an HTTP API."""
