"""``lakehouse positions``, with its history and the gaps."""
