"""Overload: rows beyond a batch's budget are sidelined and resumed later, or shed.

Reading order:

- `settings`: what a stream asks for (`Overload`).
- `bursts`: which rows of a batch are sidelined.
- `chunks`: sidelined rows and the times that they hold open (`SidelinedChunk`, `BurstOutcome`, `NO_BURST`).
- `resumption`: when chunks are resumed.
- `preferred_rows`: the order of rows by their promise to queries with a preference.
- `sideline`: the chunks' files, written and read by the backend (`Sideline`).

Other packages use the names in parentheses, and the functions of `chunks`.
"""
