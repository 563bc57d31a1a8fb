"""A plan run by processes of this machine, a stage each."""
