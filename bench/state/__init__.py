"""Room state of synthetic state groups, of all rooms and after a change."""
