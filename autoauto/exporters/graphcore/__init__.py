"""Plans as files for Graphcore's runtimes on IPUs."""
