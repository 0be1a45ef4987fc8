"""Access to the Iceberg catalog and the object store: addresses, properties, passwords and keys."""
