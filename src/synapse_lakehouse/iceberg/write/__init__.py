"""Writing Iceberg tables: create, append, commit on a branch, publish."""
