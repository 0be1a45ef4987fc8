"""Measure how long room state takes to resolve: of all rooms, and of the rooms that changed."""
