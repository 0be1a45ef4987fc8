"""Airflow on this machine: its environment and its credentials."""
