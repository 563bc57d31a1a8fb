"""Profiles and compiled ranges on disk and in databases."""
