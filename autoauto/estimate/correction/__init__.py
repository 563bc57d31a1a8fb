"""A regression from sums of layers to ranges compiled whole, and its prediction interval."""
