"""Observations of the running Synapse's streams between runs."""
