"""What engines give that serve a decoder: the one evaluator of `search`, `predict`, `--measured` and studies."""
