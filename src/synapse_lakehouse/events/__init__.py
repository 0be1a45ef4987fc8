"""Matrix's event format: loading, redaction, and hashes of events."""
