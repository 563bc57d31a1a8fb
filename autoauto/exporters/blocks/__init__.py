"""Exporters whose stages are whole blocks of a model, such as decoder layers."""
