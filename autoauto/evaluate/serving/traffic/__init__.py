"""Requests that arrive at times of their own, on replicas of engines, step by step."""
