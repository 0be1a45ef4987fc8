"""Commands that start or summarise runs: run, ui, airflow, summary."""
