"""The IPU as a cost model: tiles, workers, matrix units, exchange, code and state."""
