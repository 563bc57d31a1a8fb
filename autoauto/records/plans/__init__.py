"""What comes of a plan: pipelines and phases, and when their actions run."""
