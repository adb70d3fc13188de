"""Help for people who write queries: completion, format, and example queries. It works on unfinished text, without
an engine."""
