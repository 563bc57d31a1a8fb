"""The runtime "llamacpp" of the host: a server of this machine for a GGUF file."""
