"""What operands must be by the definition of their operator."""
