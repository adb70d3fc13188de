"""Alerts: result rows of queries become events, such as firing and resolved, for each group.

Reading order:

- `machine`: the states of one group of one alert (`GroupState`, `WindowReport`, `advance`). It is pure.
- `silences`: which alerts are silent.
- `templates`: texts with values of results in them.
- `alerts_state`: what is remembered between two batches (`AlertsState`).
- `events`: what is reported (`AlertEvent`).
- `evaluation`: one batch, for all alerts.
- `stored_form`: rules, silences and states as JSON.

`runtime` reads the result rows (`runtime/alert_windows.py`), evaluates alerts in a batch (`runtime/alert_batches.py`)
and delivers events to sinks.
"""
