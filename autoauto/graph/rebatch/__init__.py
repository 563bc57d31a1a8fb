"""The same model for another batch size, where that is provably right."""
