"""Commands that make, join or read a study of trials."""
