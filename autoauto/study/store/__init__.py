"""The database of a study: trials, attributes, tables for pandas, files for the dashboard."""
