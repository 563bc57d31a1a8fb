"""The overhead of a step of training on IPUs, besides bytes and passes: `step_overhead`.

The waits are fitted. They come from pairs of published runs of one configuration on a Pod16 and a Pod64, whose steps
take n c + o for n micro-batches, with one c and one o: `studies/training_accuracy.py` prints them, docs/training.md has
the table.
"""

from __future__ import annotations

from enum import StrEnum

from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.target import StepOverhead

ROUND_S = 1.2e-5
"""Seconds of each of the 2 (r - 1) rounds in which a ring of r replicas sums a tensor or a bucket, besides the time of
bytes and idle links. Fitted to ResNet-50 with TensorFlow 1 on 16 to 256 devices."""
TRANSFER_S = 2.8e-4
"""Seconds of a load or a store of one state of one tensor in streaming memory, besides the time of bytes. Fitted to
BERT-large 128, 384 and 512 with PopART, and to BERT-large 384 with TensorFlow."""
BUCKET_BYTES = 50 * 1024**2
"""`max_cross_replica_buffer_size` of ResNet-50 for TensorFlow 1 [graphcore-mlperf] and 2 [graphcore-examples]. Its
CNNs for PyTorch sum all gradients at once; its BERT for TensorFlow 2 has 10 MiB, 0.1 % of a step more."""


class Framework(StrEnum):
    """The framework that runs the steps."""

    POPART = "popart"
    POPTORCH = "poptorch"
    TENSORFLOW = "tensorflow"


HOST_LAMB_S = 0.22
"""Seconds in which devices wait for the hosts after a step with LAMB and PyTorch. Fitted to BERT-large 512 and ViT-B/16
with PyTorch. PopART and TensorFlow leave no room for it."""


def step_overhead(framework: Framework, clock_hz: float, update: WeightUpdate) -> StepOverhead:
    """The overhead of a step."""
    host_s = 0.0
    if framework is Framework.POPTORCH and update.optimizer is Optimizer.LAMB:
        host_s = HOST_LAMB_S
    return StepOverhead(round(ROUND_S * clock_hz), BUCKET_BYTES, round(TRANSFER_S * clock_hz), round(host_s * clock_hz))
