"""Spark sessions on the lake, and the network between their processes."""
