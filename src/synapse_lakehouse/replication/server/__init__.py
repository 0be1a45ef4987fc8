"""``lakehouse replicate serve``: the streams of a database, served over TCP."""
