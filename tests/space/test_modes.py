"""Modes: what goes together in each, and the words in which they count."""

from __future__ import annotations

from typing import Any

import pytest

from autoauto.records.costs.profile import OptimizerState
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.layers import LayerRange
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Recompute
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.requests.typical import typical_options, unused_options
from autoauto.space.table import of_every, own_values, shown, simplicity, speed_values, varying
from autoauto.targets.gpu.session import GpuSession
from autoauto.targets.registry import TARGETS

TOKENS = Knobs(2, 8, replicas=2, session=GpuSession("vllm", 2), mode=Generation(512, 128))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Training(Order.INFERENCE), "a plan trains as one of .*, got schedule inference"),
        (lambda: Training(shard_optimizer=True, optimizer_state=OptimizerState.STREAMING), "try --optimizer-state str"),
        (lambda: Phased(0), "steps must be at least 1, got 0"),
        (lambda: Phased(recompute=Recompute.AUTO), "phases recompute all or nothing, got recompute auto"),  # type: ignore[arg-type]
        (lambda: Generation(0, 1), "input and output tokens must be 1 or more, got 0 and 1"),
        (lambda: Generation(1, 0), "input and output tokens must be 1 or more, got 1 and 0"),
        (
            lambda: Training(Order.GPIPE, 2).check(2, 1),
            "gpipe has stages_per_device of 1, got 2; try --stages-per-devi",
        ),
        (lambda: Training(Order.INTERLEAVED, 1).check(2, 1), "interleaved has stages_per_device of at least 2, got 1"),
        (lambda: Training(Order.INTERLEAVED, 2, n_micro_batches=4).check(1, 1), "for pipelines of 2 devices or more"),
        (lambda: Training(Order.INTERLEAVED, 2, n_micro_batches=3).check(2, 1), "in groups of 2, got 3; try a multip"),
        (
            lambda: Training(Order.POPART, n_micro_batches=6).check(4, 1),
            "popart on 4 devices needs .* at least 7, got 6",
        ),
        (lambda: Phased().check(2, 2), "replicas are pipelines side by side, got phases"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises((BadInput, Mismatch), match=message):
        make()


def test_what_goes_together_just_so_is_allowed() -> None:
    Training(Order.INTERLEAVED, 2, n_micro_batches=4).check(2, 1)
    Training(Order.POPART, n_micro_batches=7).check(4, 1)
    Phased(1).check(2, 1)
    Generation(1, 1)


def test_values_that_nobody_gives() -> None:
    assert (Training().n_micro_batches, Training().stages_per_device, Training().recompute) == (1, 1, False)
    assert (Phased().n_micro_batches, Phased().recompute, Phased().training) == (16, False, False)
    assert (Generation().input_tokens, Generation().output_tokens) == (1024, 1024)
    assert (Inference().n_micro_batches, Inference().stages_per_device, Inference().training) == (1, 1, False)
    assert (Phased(training=True).order, Phased().order) == (Order.SEQUENTIAL, Order.INFERENCE)


def test_layers_in_the_words_of_a_mode() -> None:
    first, middle = LayerRange(0, 3), LayerRange(3, 4)
    assert (Inference().parts_text(first, 9), Inference().parts_short(first, 9)) == (f"layers {first}", str(first))
    text = Generation()  # layer 0 is the embedding, the last two are norm and head
    assert [text.parts_of(each, 6) for each in (first, middle, LayerRange(4, 6), LayerRange(0, 6))] == [*"2103"]
    assert (text.parts_text(first, 6), text.parts_text(middle, 6)) == ("2 blocks", "1 block")
    assert text.parts_short(middle, 6) == "(1 block)"


def test_columns_of_several_configurations() -> None:
    small, two = Knobs(n_ipu=1, batch_size=2), Knobs(n_ipu=1, batch_size=4)
    assert varying([small, two]) == ["batch_size"]
    assert varying([small, small]) == varying([]) == []
    assert "memory_proportion" in of_every([small])
    assert "memory_proportion" not in of_every([TOKENS])
    assert set(of_every([TOKENS])) < set(of_every([])) >= set(of_every([small, TOKENS]))
    assert {"n_ipu", "batch_size"} <= {knob.name for knob in shown(small)}
    assert "optimizer" not in {knob.name for knob in shown(Knobs(schedule=Order.GPIPE))}
    adam = Knobs(schedule=Order.GPIPE, optimizer="adam")
    assert "optimizer" in {knob.name for knob in shown(adam)}


def test_a_throughput_is_called_by_what_it_counts() -> None:
    assert speed_values(Knobs(), 3.0) == {"samples_per_s": 3.0}
    assert speed_values(TOKENS, 3.0) == {"samples_per_s": 3.0, "tokens_per_s": 3.0}
    assert own_values(TOKENS)["n_stages"] == 2
    assert "recompute" not in own_values(TOKENS)


def test_fewer_devices_are_simpler() -> None:
    order = [Knobs(n_ipu=1), Knobs(n_ipu=1, replicas=2), Knobs(n_ipu=4)]
    assert sorted([order[2], *order[:2]], key=simplicity) == order


def test_options_that_are_shown_first_by_target() -> None:
    """By what each target is: IPUs train and share memory, the host has runtimes, GPUs serve decoders."""
    ipu, host, gpu = (typical_options(TARGETS[name]) for name in ("ipu", "host", "gpu"))
    for every in (ipu, host, gpu):
        assert {"model", "target", "cluster", "n_ipu", "replicas", "batch_size", "objective"} <= every
    assert {"mode", "schedule", "steps", "io_mode", "memory_proportion", "shape", "precision"} <= ipu
    assert not ipu & {"runtime", "cores_per_device", "engine", "input_tokens", "gpus", "max_ttft_ms", "device"}
    assert {"runtime", "cores_per_device", "shape", "precision"} <= host
    assert not host & {"memory_proportion", "engine", "input_tokens", "gpus", "max_tpot_ms", "mode", "schedule"}
    assert {"engine", "tensor_parallel", "input_tokens", "output_tokens", "gpus", "max_ttft_ms", "precision"} <= gpu
    assert not gpu & {"runtime", "cores_per_device", "memory_proportion", "shape", "mode", "steps", "n_micro_batches"}
    own = {option.name for option in TARGETS["host"].options}
    assert own <= host
    assert not {option.name for option in TARGETS["ipu"].options} - {"io_mode"} & ipu


def test_options_that_say_nothing_by_target() -> None:
    ipu, host, gpu = (unused_options(TARGETS[name]) for name in ("ipu", "host", "gpu"))
    assert {"input_tokens", "output_tokens", "engine", "runtime", "streams"} <= ipu
    assert not ipu & {"mode", "global_batch", "strategy", "schedule", "memory_proportion", "precision"}
    assert {"mode", "global_batch", "strategy", "optimizer", "memory_proportion", "input_tokens"} <= host
    assert not host & {"runtime", "streams", "precision"}
    assert {"mode", "global_batch", "strategy", "shape", "stage_replicas", "runtime", "memory_proportion"} <= gpu
    assert not gpu & {"engine", "tensor_parallel", "input_tokens", "gpus", "precision"}
