"""What came of configurations: trials and the summary of a study."""
