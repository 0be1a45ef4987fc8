"""Local services that replace missing settings: PostgreSQL from a wheel, Airflow, the sample."""
