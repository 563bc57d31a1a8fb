"""What ranges of layers cost: profiles, the costs of every range, what stages exchange, checkpoints and corrections."""
