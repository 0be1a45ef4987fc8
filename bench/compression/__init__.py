"""State compression beside Synapse's own compressor, on rooms that are made up."""
