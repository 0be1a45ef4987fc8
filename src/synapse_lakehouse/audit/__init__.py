"""The audit tables and the releases."""
