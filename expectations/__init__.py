"""Validation of a run: Great Expectations suites derived from the catalogue, and their Data Docs.

Spark measures the run's branch (``audit.table_facts``, ``audit.stream_positions``, ``audit.stream_facts``); the suites
evaluate these metrics. Metrics contain only counts, IDs and names of tables, columns and writers, never content.
"""

import os

# This disables usage statistics. It must be set before great_expectations is imported.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
