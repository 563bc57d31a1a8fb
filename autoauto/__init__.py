"""autoauto: model -> graph -> profile -> estimate -> plan -> measure -> search -> report."""

__version__ = "0.1.0"
