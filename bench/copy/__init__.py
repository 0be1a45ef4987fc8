"""Measure full copies, stages of the copy, and increments, and compare them with other ways to copy PostgreSQL."""
