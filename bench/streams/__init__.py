"""Measure the task `measure_streams` on streams of up to 100 million IDs."""
