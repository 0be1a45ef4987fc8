"""``lakehouse compress`` and its history."""
