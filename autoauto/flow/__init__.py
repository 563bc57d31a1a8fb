"""The rooms in order, for one model on one cluster."""

from autoauto.flow.flow import Flow

__all__ = ["Flow"]
