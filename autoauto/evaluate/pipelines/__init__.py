"""Pipelines on all devices: planned, forecast and measured."""
