"""Build silver and gold with dbt: the project, and the incremental models."""
