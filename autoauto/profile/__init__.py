"""LayerGraph x target -> ModelProfile: every kind of layer compiled once, kept in a cache, saved as JSON."""

from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import profile_model
from autoauto.profile.ranges import RangeStore, subject_of
from autoauto.profile.store import load_profile, save_profile, write_json

__all__ = [
    "ProfileCache",
    "RangeStore",
    "load_profile",
    "profile_model",
    "save_profile",
    "subject_of",
    "write_json",
]
