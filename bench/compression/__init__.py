"""Compare state compression with Synapse's own compressor, on synthetic rooms."""
