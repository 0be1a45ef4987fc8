"""What is wrong becomes an incident; people are told once when it begins and once when it ends."""
