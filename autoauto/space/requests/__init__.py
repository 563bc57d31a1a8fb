"""Searches as people and programs state them: a request, and configurations that are given in words."""
