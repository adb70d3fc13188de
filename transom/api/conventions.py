"""Words and defaults that a server and its clients agree on."""

from __future__ import annotations

DEFAULT_URL = "http://127.0.0.1:8710"
TOKEN_VARIABLE = "TRANSOM_TOKEN"  # the environment variable that holds the access token
START_CURSOR, END_CURSOR = "start", "end"  # before the first result, after all results so far
