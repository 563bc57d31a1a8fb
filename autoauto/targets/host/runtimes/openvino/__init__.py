"""OpenVINO on the CPU: its knobs and how it runs a model."""
