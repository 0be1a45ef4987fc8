"""Rewrite room state in Synapse's database: the only package that writes there."""
