"""Resolve the state of rooms. State groups are numbered, so that a piece of state applies to ranges of numbers."""
