"""Room state and visibility of a large homeserver."""
