"""What layers run on: a cost model of an IPU, cores and GPUs of this machine, and measured times of GPUs that serve."""
