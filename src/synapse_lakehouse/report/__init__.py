"""The page about the lakehouse, and the differences between releases. Reads the lake by DuckDB."""
