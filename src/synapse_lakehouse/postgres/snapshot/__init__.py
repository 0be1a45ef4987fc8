"""One exported PostgreSQL snapshot: its WAL flush, its timeline, its table locks."""
