"""Reading and writing state groups in Synapse's database."""
