"""The lease on the lake: one process at a time moves the main branches."""
