"""Requests for a server that runs: arrivals, the protocol of text generation, and what was measured."""
