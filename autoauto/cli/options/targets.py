"""Options for the target and its devices, and the flow that they open: `add_target`, `open_flow`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.options.values import positive, share
from autoauto.records.units import Precision

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.evaluate.flow_config import FlowConfig


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add a target, a cluster, and how both are used."""
    parser.add_argument(
        "--target",
        choices=["host", "ipu"],
        default="ipu",
        help="ipu: a cost model of Graphcore's devices; host: processes of this machine; default %(default)s",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME|FILE",
        help="a built-in cluster (see `autoauto clusters`), a TOML file, or Graphcore's IPUClusterInfo as JSON; "
        "default bow-2000, or this machine for --target host",
    )
    parser.add_argument(
        "--precision",
        choices=[str(p) for p in Precision],
        help="format of weights and activations; default fp16, or the file's own (fp32) for --target host",
    )
    parser.add_argument(
        "--headroom",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of every device's memory that stays free; default %(default)g",
    )
    ipu = parser.add_argument_group("for --target ipu")
    links = ipu.add_mutually_exclusive_group()
    links.add_argument(
        "--synthetic-data", action="store_true", help="data is made on the device: the host's links cost nothing"
    )
    links.add_argument(
        "--overlap-io",
        action="store_true",
        help="32 tiles of every device exchange with the host while the others compute",
    )
    ipu.add_argument(
        "--partials",
        choices=[str(Precision.FP16), str(Precision.FP32)],
        help="format of partial sums of fp16 and fp8 products; Poplar's own default is fp32; default fp16",
    )
    ipu.add_argument(
        "--float-operators",
        default="",
        metavar="OP,OP",
        help="ONNX operators that run in fp32 between casts, for example Gelu,LayerNormalization",
    )
    host = parser.add_argument_group("for --target host")
    host.add_argument(
        "--cores-per-device", type=positive, metavar="N", help="cores, hence threads, of a device; default 1"
    )
    host.add_argument(
        "--device-memory-mib",
        type=positive,
        metavar="N",
        help="what a device may hold besides the runtime; default: an equal part of this machine's memory",
    )


def config_of(args: argparse.Namespace) -> FlowConfig:
    """The names, files and options that make a flow."""
    from autoauto.evaluate.flow_config import FlowConfig

    return FlowConfig.of(vars(args))


def open_flow(args: argparse.Namespace) -> Flow:
    """The model on the cluster of the arguments.

    Raises:
        BadInput: no such model or cluster, one that cannot be read, or an option of another target.
    """
    return config_of(args).open(getattr(args, "storage", None))
