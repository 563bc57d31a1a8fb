"""What the trials of a study show: the best, its verification, comparisons, a summary, a dry run."""
