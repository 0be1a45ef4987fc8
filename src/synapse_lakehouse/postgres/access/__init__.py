"""Rights in Synapse's database, and the checks before it is read."""
