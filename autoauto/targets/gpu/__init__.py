"""Groups of GPUs that serve language models: measured times of kernels, memory, and the steps of serving engines."""
