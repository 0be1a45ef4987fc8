"""How dbt builds silver and gold: the project, and the incremental models."""
