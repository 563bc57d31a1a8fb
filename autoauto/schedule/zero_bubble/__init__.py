"""The search for a zero bubble order: bounds, list scheduling, itineraries, moves on the critical path."""
