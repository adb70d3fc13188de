"""Structures that are looked up: tuples of one attribute, kept so that any window up to now is answered."""
