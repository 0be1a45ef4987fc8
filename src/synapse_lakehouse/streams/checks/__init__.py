"""Checks of streams: sequences, regressions, stalled writers, changed rows, acknowledgements."""
