"""``lakehouse state``: room state that the database lost."""
