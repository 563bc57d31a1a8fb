"""Two pools: servers that compute prompts, and replicas that compute tokens of answers."""
