"""State compression compared with Synapse's own compressor, on synthetic rooms."""
