"""The gates of the lakehouse: Great Expectations suites derived from the catalogue, and their Data Docs.

Spark counts on the run's branch (``audit.table_facts``, ``audit.stream_positions``, ``audit.stream_facts``); here those
counts are judged. Only counts, ids and names of tables, columns and writers come this way, never content.
"""

import os

# Before great_expectations is imported anywhere: nothing is reported to anybody.
os.environ["GX_ANALYTICS_ENABLED"] = "false"
