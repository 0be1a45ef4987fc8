"""One exported PostgreSQL snapshot: WAL flush, timeline, table locks."""
