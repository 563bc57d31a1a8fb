"""Plans of pipelines and of phases, and timelines of their actions."""
