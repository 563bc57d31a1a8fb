"""What layers run on: every target compiles ranges of layers into cycles and memory."""
