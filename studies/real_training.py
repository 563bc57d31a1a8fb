"""Train real networks in pipelines of processes, measured and simulated: `python studies/real_training.py`.

A residual network learns handwritten digits, and a transformer the characters of Python's help topics. Each is
exported as ONNX and planned in every order. `autoauto export --to torch` writes the split, the schedule and the program
that loads them, and by these files PyTorch trains over gloo, a process a stage. A process has one thread, and a core of
its own as far as the cores go. The orders take steps in turn, with the batches and the first weights of training in one
process without a pipeline, the row "whole".

gradient    the largest difference of a gradient of the first step from that of the whole, over the parameter's largest
loss        the largest relative difference of a step's loss from that of the whole
right       the share of samples, which were not trained on, whose class or next character is predicted at the end
step ms     measured: wall time from a barrier to the end of the last process's update, median of all steps but two
simulated   the step of the same schedule by our simulator, from the CPU time of every stage's actions without messages,
            while the other stages do the same, the shortest time of a message, and the CPU time of the update
ratio       step ms over simulated
cpu         simulated from the CPU time in the pipeline, of actions and of all between them, over simulated
core        CPU time over wall time of the actions without messages; below 1 other processes take the cores, and `ratio`
            says more of them than of the simulator
speed-up    step ms of the whole over that of the pipeline

Where stages are more than cores the results count, and there are no times.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import write_artifact
from autoauto.records.schedule import ActionKind, Order, Schedule
from autoauto.records.units import Array
from autoauto.schedule.csv_checks import read_schedule_csv
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import stage_times
from autoauto.space.knobs import Knobs

try:
    import torch
    from torch import Tensor, distributed, nn

    from studies.small_networks import Network, loss_of
except ImportError as error:
    raise SystemExit(f"real_training needs PyTorch: {error}; try: pip install torch==2.13.0") from error

ORDERS = (Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P)
N_MICRO_BATCHES = 8
GRADIENT_TOLERANCE, LOSS_TOLERANCE = 1e-5, 1e-4
"""Sums of micro-batches round otherwise than those of the batch, and the optimizer carries that from step to step."""
N_WARM = 2  # steps that are not measured
N_MESSAGES = 50
UPDATE = "update"
COLUMNS = (
    "network", "stages", "order", "first loss", "last loss", "right", "gradient", "loss",
    "step ms", "simulated", "ratio", "cpu", "core", "speed-up",
)  # fmt: skip
WIDTHS = (7, 8, 7, 12, 11, 9, 10, 10, 9, 11, 7, 7, 6, 10)


DIGITS = Network("digits", width=768, batch_size=64, n_steps=30)
TEXT = Network("text", width=128, batch_size=8, n_steps=30, n_characters=64)
CASES = ((DIGITS, (2, 4)), (TEXT, (2,)))
QUICK_CASES = ((DIGITS._replace(width=64, n_steps=6), (2,)),)


def write_plans(network: Network, n_stages: int, folder: Path) -> None:
    """Export the network as ONNX, and the best plan of every order as users do."""
    model = folder / f"{network.name}.onnx"
    inputs, _ = network.samples()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own
        torch.onnx.export(network.module(), (inputs[: network.batch_size],), model, dynamo=False)
    flow = load_flow(model, "bow-pod16", cut_at="blocks")
    for order in ORDERS:
        trial = flow.expect(
            Knobs(
                n_ipu=n_stages,
                memory_proportion=0.6,
                batch_size=network.batch_size,
                schedule=order,
                n_micro_batches=N_MICRO_BATCHES,
            )
        )
        checks = write_artifact(deployment(flow, str(model), trial), "torch", folder / order, check=True)
        assert all(check.passed is not False for check in checks)


class Whole(NamedTuple):
    """Training in one process.

    Attributes:
        losses, seconds: of every step.
        gradients: of the first step, by name.
        right: the share that the end predicts.
    """

    losses: list[float]
    seconds: list[float]
    gradients: dict[str, Array]
    right: float


def train_whole(rank: int, network: Network) -> Whole:
    """Train without a pipeline."""
    use_core(rank)
    module, losses, seconds = network.module(), [], []
    optimizer = network.optimizer(module.parameters())
    gradients: dict[str, Array] = {}
    for inputs, target in network.batches(N_MICRO_BATCHES):
        start_s = perf_counter()
        loss: Any = loss_of(module(inputs), target)
        loss.backward()
        gradients = gradients or gradients_of(module)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(perf_counter() - start_s)
        losses.append(float(loss.detach()))
    return Whole(losses, seconds, gradients, network.right(module))


def use_core(rank: int) -> None:
    """Let this process have one core and one thread, and print no warnings of PyTorch about itself."""
    warnings.simplefilter("ignore")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)


def gradients_of(module: nn.Module) -> dict[str, Array]:
    """A copy of every parameter's gradient by its name."""
    named = module.named_parameters()
    return {name: parameter.grad.numpy().copy() for name, parameter in named if parameter.grad is not None}


class Times(NamedTuple):
    """CPU seconds of all actions of every kind, and wall time of all of them."""

    cpu_s: dict[str, float]
    wall_s: float


class Clock:
    """Counts for every kind of action the time from the end of the action before to its own end."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin an empty record."""
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.cpu_start_s, self.wall_start_s = process_time(), perf_counter()

    def stop(self, kind: str) -> None:
        """End an action."""
        cpu_stop_s = process_time()
        self.cpu_s[kind] += cpu_stop_s - self.cpu_start_s
        self.cpu_start_s = cpu_stop_s

    def times(self) -> Times:
        """All since the start."""
        return Times(dict(self.cpu_s), perf_counter() - self.wall_start_s)

    def watch(self, owner: Any, method: str, kind: str) -> None:
        """Stop after every call of a method."""
        call = getattr(owner, method)

        def stopping(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            self.stop(kind)
            return result

        setattr(owner, method, stopping)


class Trained(NamedTuple):
    """What a rank did in one order.

    Attributes:
        losses: of every step; empty where another rank has the last stage.
        gradients: of the first step, by name.
        weights: at the end, by name.
        steps: what every step took.
        alone: what the actions of a step took without the pipeline.
        message_s: from one rank to another.
    """

    losses: list[float]
    gradients: dict[str, Array]
    weights: dict[str, Array]
    steps: list[Times]
    alone: list[Times]
    message_s: float


class StageTrainer:
    """The stage of this process in one order, as the exported program loads it."""

    def __init__(self, network: Network, folder: Path) -> None:
        spec = importlib.util.spec_from_file_location("torch_pipeline", folder / "torch_pipeline.py")
        assert spec is not None
        assert spec.loader is not None
        exported = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(exported)
        inputs, _ = network.samples()
        self.stages, self.schedule = exported.load(network.module(), (inputs[: network.batch_size],), loss_of)
        self.stage, self.clock = self.stages[0], Clock()
        self.optimizer = network.optimizer(self.stage.submod.parameters())
        self.actions = list(read_schedule_csv(folder / "schedule.csv").actions(distributed.get_rank()))
        for owner, method, kind in (
            (self.stage, "forward_one_chunk", ActionKind.FORWARD),
            (self.schedule, "_maybe_compute_loss", ActionKind.FORWARD),
            (self.stage, "backward_one_chunk", ActionKind.BACKWARD),
            (self.stage, "backward_weight_one_chunk", ActionKind.WEIGHT),
            (self.stage, "perform_reduce_grad", UPDATE),
            (self.optimizer, "step", UPDATE),
        ):
            self.clock.watch(owner, method, kind)
        self.trained = Trained([], {}, {}, [], [], 0.0)

    def step(self, inputs: Tensor, target: Tensor) -> None:
        """Train with a batch."""
        losses: list[Tensor] = []
        distributed.barrier()
        self.clock.start()
        self.schedule.step(*([inputs] if self.stage.is_first else []), target=target, losses=losses)
        if not self.trained.steps:
            self.trained.gradients.update(gradients_of(self.stage.submod))
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.trained.steps.append(self.clock.times())
        if losses:
            self.trained.losses.append(float(torch.stack(losses).detach().mean()))

    def run_alone(self, inputs: Tensor, target: Tensor) -> None:
        """Run the actions of this rank with the messages of the last step, while all others do the same."""
        split = any(action.kind is ActionKind.WEIGHT for action in self.actions)
        parts, targets = inputs.chunk(N_MICRO_BATCHES), target.chunk(N_MICRO_BATCHES)
        distributed.barrier()
        self.clock.start()
        for _, kind, m in self.actions:
            if kind is ActionKind.FORWARD:
                self.schedule._maybe_compute_loss(self.stage, self.stage.forward_one_chunk(m, (parts[m],)), targets, m)
            elif kind is ActionKind.BACKWARD:
                loss = self.schedule._maybe_get_loss(self.stage, m)
                self.stage.backward_one_chunk(m, loss=loss, full_backward=not split)
            else:
                self.stage.backward_weight_one_chunk(m)
        self.trained.alone.append(self.clock.times())
        self.optimizer.zero_grad()
        self.stage.clear_runtime_states()
        self.stage.bwd_cache.clear()
        self.schedule._internal_losses.clear()


def train_stage(rank: int, n_stages: int, network: Network, folder: Path) -> dict[Order, Trained]:
    """What one process of a pipeline does."""
    use_core(rank)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo", f"file://{folder}/meeting", timedelta(minutes=5), world_size=n_stages, rank=rank
    )
    trainers = {order: StageTrainer(network, folder / order) for order in ORDERS}
    for number, (inputs, target) in enumerate(network.batches(N_MICRO_BATCHES)):
        for trainer in trainers.values():
            trainer.step(inputs, target)
            if number % 4 == 1:
                trainer.run_alone(inputs, target)
    message_s = message_seconds(torch.zeros(network.batch_size * max(network.n_characters, 1) * network.width))
    distributed.destroy_process_group()
    return {order: finished(trainer, message_s) for order, trainer in trainers.items()}


def finished(trainer: StageTrainer, message_s: float) -> Trained:
    """The results at the end."""
    weights = {name: parameter.detach().numpy() for name, parameter in trainer.stage.submod.named_parameters()}
    return trainer.trained._replace(weights=weights, message_s=message_s)


def message_seconds(tensor: Tensor) -> float:
    """Half the shortest way from the first rank to the second and back; disturbances only add to it."""
    rank, seconds = distributed.get_rank(), [0.0]
    if rank < 2:
        for _ in range(N_MESSAGES):
            start_s = perf_counter()
            for sender in (0, 1):
                (distributed.send if rank == sender else distributed.recv)(tensor, 1 - rank)
            seconds.append((perf_counter() - start_s) / 2)
    distributed.barrier()
    return min(seconds[1:], default=0.0)


def in_processes(n: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The results of as many processes, which get their numbers first."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torch.distributed.pipelining"])  # imported once, in seconds
    with ProcessPoolExecutor(n, mp_context=context) as pool:
        return [future.result() for future in [pool.submit(work, rank, *arguments) for rank in range(n)]]


def simulated_seconds(schedule: Schedule, times: Sequence[Sequence[Times]], trained: Sequence[Trained]) -> float:
    """The step of ranks whose actions took these times, a sequence a rank; an action takes the median of its means."""
    forward, backward, weight = (
        [nanoseconds(middle(rank, kind) / N_MICRO_BATCHES) for rank in times]
        for kind in (ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.WEIGHT)
    )
    messages = [nanoseconds(trained[0].message_s)] * len(times)
    stages = stage_times(schedule.devices, forward, backward, weight, messages, split_backward=True)
    stops = simulate(schedule, stages).stops
    updates = (middle(rank.steps[N_WARM:], UPDATE) for rank in trained)
    return max(int(stop[-1]) / 1e9 + update for stop, update in zip(stops, updates, strict=True))


def middle(times: Sequence[Times], kind: str) -> float:
    """The median CPU time of all actions of a kind."""
    return median(each.cpu_s.get(kind, 0.0) for each in times)


def nanoseconds(seconds: float) -> Fraction:
    """In whole numbers, as cycles are."""
    return Fraction(round(1e9 * seconds))


def largest_error(gradients: dict[str, Array], whole: dict[str, Array]) -> float:
    """The largest difference over the parameter's largest gradient."""
    assert gradients.keys() == whole.keys()
    return max(float(np.abs(gradients[name] - other).max() / np.abs(other).max()) for name, other in whole.items())


class Outcome(NamedTuple):
    """What a row shows of results: of the first and the last step the loss, and the errors."""

    first_loss: float
    last_loss: float
    right: float
    gradient_error: float
    loss_error: float

    @property
    def is_equal(self) -> bool:
        """Whether the errors are within the tolerances."""
        return self.gradient_error <= GRADIENT_TOLERANCE and self.loss_error <= LOSS_TOLERANCE


def outcome(network: Network, trained: Sequence[Trained], whole: Whole) -> Outcome:
    """The results of all ranks, compared with training in one process."""
    module, losses = network.module(), trained[-1].losses
    gradients = {name: gradient for rank in trained for name, gradient in rank.gradients.items()}
    module.load_state_dict({name: torch.tensor(weight) for rank in trained for name, weight in rank.weights.items()})
    loss_error = max(abs(loss / other - 1) for loss, other in zip(losses, whole.losses, strict=True))
    gradient_error = largest_error(gradients, whole.gradients)
    return Outcome(losses[0], losses[-1], network.right(module), gradient_error, loss_error)


def time_cells(schedule: Schedule, trained: Sequence[Trained], whole: Whole) -> list[str]:
    """The step as it was measured and simulated, and their ratios."""
    runs, alone = ([getattr(rank, name) for rank in trained] for name in ("steps", "alone"))
    step_s = median(max(each.wall_s for each in ranks) for ranks in [*zip(*runs, strict=True)][N_WARM:])
    simulated_s = simulated_seconds(schedule, alone, trained)
    cpu_s = simulated_seconds(schedule, [steps[N_WARM:] for steps in runs], trained)
    core = median(sum(each.cpu_s.values()) / each.wall_s for rank in alone for each in rank)
    ratios = (step_s / simulated_s, cpu_s / simulated_s, core, median(whole.seconds[N_WARM:]) / step_s)
    return [f"{1000 * step_s:.1f}", f"{1000 * simulated_s:.1f}", *(f"{ratio:.2f}" for ratio in ratios)]


def rows(network: Network, n_stages: int, whole: Whole) -> Iterator[bool]:
    """Print a line for every order; whether its results are those of the whole."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_plans(network, n_stages, folder)
        ranks = in_processes(n_stages, train_stage, n_stages, network, folder)
        for order in ORDERS:
            trained = [rank[order] for rank in ranks]
            result = outcome(network, trained, whole)
            schedule = read_schedule_csv(folder / order / "schedule.csv")
            timed = n_stages <= len(os.sched_getaffinity(0))
            times = time_cells(schedule, trained, whole) if timed else []
            print_row([network.name, str(n_stages), order, *result_cells(result), *times])
            yield result.is_equal


def result_cells(result: Outcome) -> list[str]:
    """Losses, a share and two errors."""
    errors = (f"{error:.0e}" for error in (result.gradient_error, result.loss_error))
    return [f"{result.first_loss:.4f}", f"{result.last_loss:.4f}", f"{100 * result.right:.1f} %", *errors]


def print_row(cells: Sequence[str]) -> None:
    """One line of the table."""
    print("".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=False)), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and print one table.

    Returns:
        0, or 1 when a pipeline did not train as one process does.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, few steps, two stages")
    quick = parser.parse_args(argv).quick
    print_row(COLUMNS)
    equal: list[bool] = []
    for network, stage_counts in QUICK_CASES if quick else CASES:
        whole = in_processes(1, train_whole, network)[0]
        ends = Outcome(whole.losses[0], whole.losses[-1], whole.right, 0.0, 0.0)
        print_row([network.name, "1", "whole", *result_cells(ends), f"{1000 * median(whole.seconds[N_WARM:]):.1f}"])
        for n_stages in stage_counts:
            equal += rows(network, n_stages, whole)
    answer = "yes" if all(equal) else "NO"
    print(f"gradients are equal within {GRADIENT_TOLERANCE:.0e}, losses within {LOSS_TOLERANCE:.0e}: {answer}")
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
