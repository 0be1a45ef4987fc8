"""Alerts: findings open incidents; sinks receive one message when an incident begins and one when it ends."""
