"""Graphics processors (GPUs) of NVIDIA as devices of this machine."""
