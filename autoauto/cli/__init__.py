"""The command line: `autoauto COMMAND ...`."""
