"""A running engine for people and programs elsewhere: a service, its HTTP API, and its dashboard."""
