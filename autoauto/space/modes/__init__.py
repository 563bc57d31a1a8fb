"""What a model is run for, and how: a file for each mode, with its knobs."""
