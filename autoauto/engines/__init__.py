"""Serving engines, one file each: what an engine takes, holds and adds, and how it is started."""
