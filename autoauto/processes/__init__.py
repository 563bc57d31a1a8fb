"""Processes that we start: how they end, what they send, and what they hold."""
