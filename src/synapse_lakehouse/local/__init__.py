"""Local services for settings that are not set: PostgreSQL from a wheel, Airflow, the sample."""
