"""The assembly line of [sharding-book, Code for inference only] on processes: `python studies/assembly_line.py`.

Every device has one layer: even devices compute x @ W, odd ones ReLU first. A device starts as soon as it has the
output of the device before. Every layer also sleeps, as if it were large, so that devices overlap on few cores, too.
Prints what every device sent and received, and the speed-up over one device, measured and in lock step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoauto.programs.sharded_engine.matrix_pipeline import PipeliningInferenceOnly, SingleDevice, random_weights
from autoauto.programs.sharded_engine.run import ShardedRun, run_sharded
from autoauto.records.units import Array

MODEL_DIM, HIDDEN_DIM, BATCH_SIZE = 64, 256, 8


class SleepingLayer(PipeliningInferenceOnly):
    """A layer of the pipeline that sleeps before it computes."""

    def __init__(self, model_dim: int, hidden_dim: int, sleep_s: float) -> None:
        super().__init__(model_dim, hidden_dim)
        self.sleep_s = sleep_s

    def forward(self, x: npt.ArrayLike) -> Array:
        """(batch, fan in) to (batch, fan out) of this device's layer."""
        time.sleep(self.sleep_s)
        return super().forward(x)


def speed_up(run: ShardedRun) -> float:
    """The busy time of all devices over the time of the whole run."""
    timeline = run.timeline()
    return sum(timeline.busy_cycles) / timeline.makespan_cycles


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline, compare it with one device, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=4, help="how many, one layer each (default 4)")
    parser.add_argument("--requests", type=int, default=16, help="how many batches of inputs (default 16)")
    parser.add_argument("--sleep-ms", type=float, default=20, help="how long a layer sleeps (default 20)")
    options = parser.parse_args(argv)
    checkpoint = random_weights(MODEL_DIM, HIDDEN_DIM, options.devices)
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(BATCH_SIZE, MODEL_DIM)).astype(np.float32) for _ in range(options.requests)]
    run = run_sharded(
        SleepingLayer, options.devices, checkpoint, inputs, MODEL_DIM, HIDDEN_DIM, options.sleep_ms / 1000
    )
    alone = SingleDevice(MODEL_DIM, HIDDEN_DIM, options.devices)
    alone.load_checkpoint(checkpoint)
    same = all(np.array_equal(y, alone.forward(x)) for x, y in zip(inputs, run.outputs, strict=True))
    print(*run.rows(), sep="\n")
    print(f"outputs are those of one device, in order: {'yes' if same else 'no'}")
    p, m = options.devices, options.requests
    print(f"times as fast as one device: {speed_up(run):.2f} measured, {p * m / (p + m - 1):.2f} in lock step")


if __name__ == "__main__":
    main()
