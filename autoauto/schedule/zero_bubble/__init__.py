"""The search for a zero bubble order: bounds, list scheduling, itineraries, cyclic orders."""
