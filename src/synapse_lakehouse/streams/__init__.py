"""Synapse's streams: who writes them, how far they are complete, and what of them is in the lake."""
