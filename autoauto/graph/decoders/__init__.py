"""Decoder-only language models from their configs."""
