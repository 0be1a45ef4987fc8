"""The embedded PostgreSQL: server, account, roles, sample."""
