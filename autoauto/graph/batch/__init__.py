"""A model at another batch size: where the samples lie, and what changes in the nodes."""
