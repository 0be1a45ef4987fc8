"""Services of one machine for settings that name none: PostgreSQL from a wheel, Airflow, the sample."""
