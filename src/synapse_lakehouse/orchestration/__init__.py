"""What the DAGs are made of; the only modules of the package that import Airflow.

Whatever is heavy is imported when a task runs, not when a DAG file is parsed.
"""
