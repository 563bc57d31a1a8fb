"""Searches as a service: users, a queue of searches, workers that take them, and a REST interface."""
