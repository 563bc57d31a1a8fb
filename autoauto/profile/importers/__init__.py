"""Profiles that other tools wrote."""
