"""Synapse's database as the compressor reads and writes it."""
