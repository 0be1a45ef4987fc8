"""Rights in Synapse's database, and the checks before a copy."""
