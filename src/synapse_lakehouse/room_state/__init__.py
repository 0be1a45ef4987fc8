"""The state of a room at any event: state groups numbered so that each piece of state holds for ranges of numbers."""
