"""A plan run by processes of this machine, one a device."""
