"""Alerts. Findings open incidents, and sinks receive a message when an incident begins and when it ends."""
