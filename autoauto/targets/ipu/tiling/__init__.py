"""Ways to cut a product over tiles, their cost, and the fastest within a bound on memory."""
