"""``lakehouse positions``: stream positions, their history, and gaps."""
