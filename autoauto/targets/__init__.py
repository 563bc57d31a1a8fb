"""Targets, on which layers run: a cost model of an IPU, cores and GPUs of this machine, and measured times of GPUs."""
