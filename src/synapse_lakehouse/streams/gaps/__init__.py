"""Gaps in stream IDs: detection, evidence, classification, log."""
