"""The Iceberg lake: catalog, Spark sessions, readers, writers, maintenance and the lease."""
