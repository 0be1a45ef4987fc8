"""Positions of streams: measurement, writers and the safe bound."""
