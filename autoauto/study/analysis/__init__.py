"""Analysis of the trials of a study: the best, its verification, comparisons, a summary, a dry run."""
