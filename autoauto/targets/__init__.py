"""What layers run on: a target compiles ranges of layers into cycles and memory."""
