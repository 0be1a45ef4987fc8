"""What an event's stored JSON proves about itself: its id and its content by the hashes that Matrix defines."""
