"""Copy Synapse's tables to bronze from one snapshot: read plans, incremental merges, the ledger, reconciliation."""
