"""Modelled cycles of every operator against what no device can do faster: `python studies/operator_table.py [MODEL ...]`.

The bound of an operator is the larger of two: its bytes, read and written once at the rate of a tile's memory, and its
arithmetic at the rate of the units that do it. Beyond it an operator may take the steps that its class needs (a step:
sync, the shortest exchange, a launch), and `CLASSES` says how many times the bound, and why. Without MODEL all cases of
`operator_cases.py` are printed; with MODEL (files or built-in names) the share of cycles of every operator in a model,
and its worst layer. `--above N` leaves out what is below N times its bound.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, log2
from typing import NamedTuple

from autoauto.graph.load import load_graph
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.kernels import codelets as kernels
from autoauto.targets.ipu.operator_cost import Family, OperatorContext, OperatorCost, size
from autoauto.targets.ipu.operators.registry import COST_RULES, forward_cost
from studies.operator_cases import CASES

MEMORY_BYTES_PER_CYCLE = 24  # of a tile: two loads and a store of 8 bytes
VECTOR_BYTES_PER_CYCLE = 16  # 8 operations on halves, 4 on floats
MATRIX_OPERATIONS_PER_CYCLE = {Precision.FP8: 256, Precision.FP16: 128, Precision.FP32: 32}
STEP_CYCLES = kernels.SYNC_CYCLES + kernels.SHORTEST_EXCHANGE_CYCLES + kernels.BINARY_LAUNCH_CYCLES
