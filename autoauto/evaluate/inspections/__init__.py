"""What a model is and what is known of it, before anything is planned: of ONNX files, and of decoders."""
