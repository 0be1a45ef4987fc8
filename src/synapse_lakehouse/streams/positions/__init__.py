"""Positions of streams: their measurement, their writers and the safe bound."""
