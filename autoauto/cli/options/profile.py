"""Options for a profile that another tool recorded, and for the devices that it is of: `add_profile`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from autoauto.cli.options.values import at_most, positive_number
from autoauto.records.hardware import MAX_DEVICES
from autoauto.records.profile import RecordedFormat

PROFILE_OPTIONS = (
    *("profile", "profile_format", "profile_details"),
    *("devices", "device_memory_gib", "link_gb_per_s"),
)
"""The arguments of a profile and its devices."""


def add_profile(parser: argparse.ArgumentParser, formats: Iterable[str] = (), more_help: str = "") -> None:
    """Add the files of a profile, and its devices, whose memory `add_target` adds.

    A command may read further `formats`.
    """
    group = parser.add_argument_group("profiles of other programs")
    group.add_argument(
        "--profile",
        action="append",
        metavar="[B=]FILE",
        help="instead of profiling MODEL use this profile of it, recorded at batch size B; may be given once for every "
        f"batch size; MODEL is then only for onnxruntime{more_help}",
    )
    group.add_argument(
        "--profile-format", choices=[*map(str, RecordedFormat), *formats], help="what the profile was recorded with"
    )
    group.add_argument(
        "--profile-details",
        action="append",
        metavar="[B=]FILE",
        help="more about the same layers: what trtexec writes with --exportLayerInfo, which tensorrt needs, or ONNX "
        "Runtime with session.collect_node_memory_stats_to_file",
    )
    group.add_argument(
        "--devices",
        type=at_most(MAX_DEVICES),
        metavar="N",
        help="so many equal devices in a line, instead of --cluster",
    )
    group.add_argument(
        "--link-gb-per-s",
        type=positive_number,
        metavar="RATE",
        help="10**9 bytes a second that each of --devices receives from its neighbour or the host, or sends there",
    )
