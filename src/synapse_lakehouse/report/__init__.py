"""The page about the lakehouse, and the differences between releases, both read from the lake by DuckDB."""
