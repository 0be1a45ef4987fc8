"""Benchmarks. Each measures, prints tables, and writes them to ``docs/bench*.md``."""
