"""Memory that processes share: rings of messages, and arrays in a file."""
