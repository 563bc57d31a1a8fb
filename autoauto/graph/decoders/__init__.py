"""Files that describe a decoder-only language model, and the decoder that each reads."""
