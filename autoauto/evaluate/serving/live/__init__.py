"""Configurations of servers that this machine runs, measured beside each other."""
