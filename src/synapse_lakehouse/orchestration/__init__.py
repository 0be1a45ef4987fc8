"""Tasks, callbacks and assets of the DAGs; only this package imports Airflow.

Large packages are imported when a task runs, not when a DAG file is parsed.
"""
