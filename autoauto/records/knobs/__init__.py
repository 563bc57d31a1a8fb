"""What may be set, and what is: the knob table, configurations, spaces of them and constraints."""
