"""Metrics of a lake in the text format of Prometheus."""
