"""The Iceberg lake: catalog, tables, branches, the lease, releases."""
