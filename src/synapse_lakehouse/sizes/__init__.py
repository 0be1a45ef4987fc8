"""Sizes of Synapse's database and of the lake: measurement, growth and forecast."""
