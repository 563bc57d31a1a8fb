"""Plan -> Schedule -> Timeline: one file an order; check, simulate, bubble checks, PopART's program."""
