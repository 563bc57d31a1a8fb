"""What every ONNX operator costs, forward and backward."""
