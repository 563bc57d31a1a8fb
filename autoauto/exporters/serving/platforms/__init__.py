"""Platforms on which servers of text are started, a file each."""
