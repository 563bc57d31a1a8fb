"""The output that several commands share."""
