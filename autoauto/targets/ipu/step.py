"""What a step of training on IPUs costs once, besides bytes and passes: `step_overhead`.

The waits are fitted. They come from pairs of published runs of one configuration on a Pod16 and a Pod64, whose steps
take n c + o for n micro-batches, with one c and one o: `studies/training_accuracy.py` prints them, docs/training.md has
the table.
"""

from __future__ import annotations

from enum import StrEnum

from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.target import StepOverhead

ROUND_S = 6.5e-5
"""Of each of the 2 log2 r rounds in which r replicas sum a tensor or a bucket, besides what bytes take. Fitted to
ResNet-50 of MLPerf v2.0 with the buckets below, and to BERT-large with PopART."""
TRANSFER_S = 2.8e-4
"""Of a load or a store of one state of one tensor in streaming memory, besides what bytes take. Fitted to BERT-large
128, 384 and 512 with PopART, and to BERT-large 384 with TensorFlow."""
BUCKET_BYTES = 10 * 1024**2
"""`max_cross_replica_sum_buffer_size` of Graphcore's BERT for TensorFlow 2 [graphcore-examples]."""


class Framework(StrEnum):
    """What runs the steps."""

    POPART = "popart"
    POPTORCH = "poptorch"
    TENSORFLOW = "tensorflow"


HOST_LAMB_S = 0.22
"""In which devices wait for the hosts after a step with LAMB and PyTorch. Fitted to BERT-large 512 and ViT-B/16 with
PyTorch. PopART and TensorFlow leave no room for it."""
HOST_STEP_S = 0.03
"""The same with another optimizer. Fitted to ResNet-50, to fine-tuning of ViT-B/16 and to SQuAD with PyTorch, which
leave room for 51, 18 and 40 ms; SQuAD with PopART leaves room for none."""


def step_overhead(framework: Framework, clock_hz: float, update: WeightUpdate) -> StepOverhead:
    """The overhead of a step."""
    host_s = 0.0
    if framework is Framework.POPTORCH:
        host_s = HOST_LAMB_S if update.optimizer is Optimizer.LAMB else HOST_STEP_S
    round_cycles, transfer_cycles, host_cycles = (round(s * clock_hz) for s in (ROUND_S, TRANSFER_S, host_s))
    return StepOverhead(round_cycles, BUCKET_BYTES, transfer_cycles, host_cycles)
