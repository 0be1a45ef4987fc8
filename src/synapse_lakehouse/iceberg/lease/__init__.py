"""The lease on the lake: only one run at a time may move the main branches."""
