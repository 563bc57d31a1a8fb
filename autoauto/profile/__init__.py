"""LayerGraph x target -> ModelProfile: every kind of layer compiled once and cached."""
