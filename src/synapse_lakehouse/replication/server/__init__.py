"""``lakehouse replicate serve``: serve the streams of a database over TCP."""
