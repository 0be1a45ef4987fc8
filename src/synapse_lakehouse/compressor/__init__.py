"""The state compressor: stores room state in fewer rows. Only this package writes to Synapse's database."""
