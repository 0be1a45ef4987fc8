"""Fewer rows for the same room state: pure algorithms on arrays, without input or output."""
