"""Requests that arrive at times of their own: how, how long they are, and how they are served."""
