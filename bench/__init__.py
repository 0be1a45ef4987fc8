"""``make bench``: how fast a full copy and an increment are, beside other ways to copy the same tables."""
