"""Measure room state and visibility of a large homeserver."""
