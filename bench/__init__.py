"""Benchmarks: each one measures, prints tables, and writes them to ``docs/bench*.md``."""
