"""Read Iceberg tables without a JVM: DuckDB, snapshot differences, newest rows."""
