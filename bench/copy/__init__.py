"""Full copies, stages of the copy, and increments, compared with other ways to copy PostgreSQL."""
