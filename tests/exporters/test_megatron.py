"""The options of Megatron-LM, read by a shell, by rules of the test's own, and by Megatron-LM's own parser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autoauto.exporters.blocks.megatron import check, megatron_counts, megatron_layout
from autoauto.exporters.exporter import Check
from autoauto.exporters.registry import write_artifact
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import TRAINING_ORDERS, spec_of
from tests.exporters.block_plans import MakeChain, deployment, graph_of_blocks, written
from tests.orders import STAGES_PER_DEVICE, n_stages_of

PARTITION = [0, 2, 8, 12]


def sourced(folder: Path, file: str, printed: str) -> str:
    """What a shell prints after it has read a file."""
    command = ["bash", "-c", f'set -a; . "$0"; set +a; {printed}', str(folder / file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


GRAPHS, DEVICES = range(8, 24, 2), (1, 2, 3, 4)
"""Numbers of blocks of eight models, and of devices."""
ORDERS_OF_MEGATRON = (Order.ONE_F_ONE_B, Order.INTERLEAVED)


def plans() -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The blocks, the devices, and the knobs of a plan of every order: several chunks on several devices."""
    for n_blocks in GRAPHS:
        for n_devices in DEVICES:
            for order in TRAINING_ORDERS:
                chunks = STAGES_PER_DEVICE[order][0]
                if n_devices > 1 or n_stages_of(order, 1) == 1:
                    n_micro_batches = max(2 * n_devices, spec_of(order).min_micro_batches(n_devices))
                    knobs = {"schedule": order, "stages_per_device": chunks, "n_micro_batches": n_micro_batches}
                    yield n_blocks, n_devices, knobs | {"n_ipu": n_devices}


def evenly(n_blocks: int, n_stages: int) -> list[int]:
    """Boundaries between blocks of two layers."""
    return [2 * (n_blocks * stage // n_stages) for stage in range(n_stages + 1)]


def test_a_plan_of_any_order_means_the_same_there_or_is_refused(
    chain: MakeChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "autoauto.exporters.blocks.megatron._parsed", lambda *_: Check("its parser", None, "is tried below")
    )
    for number, (n_blocks, n_devices, knobs) in enumerate(plans()):
        partition = evenly(n_blocks, n_stages_of(knobs["schedule"], n_devices))
        made = deployment(graph_of_blocks(chain, n_blocks), partition, **knobs)
        if knobs["schedule"] in ORDERS_OF_MEGATRON:
            written(made, "megatron", tmp_path / str(number))
        for to in ("megatron",) * (knobs["schedule"] not in ORDERS_OF_MEGATRON) + ("deepspeed",):
            if knobs["schedule"] is not Order.ONE_F_ONE_B:
                with pytest.raises(BadInput, match=rf"trains in the order .*, got {knobs['schedule']}; try --sch"):
                    write_artifact(made, to, tmp_path / f"{number}-{to}")


PROGRAM = """
import json, sys
from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
for text, size in json.load(sys.stdin):
    layout = PipelineParallelLayerLayout.from_str(text, size)
    counts = [[part.count(LayerType.decoder) for part in rank] for rank in layout.layout]
    print(json.dumps([layout.virtual_pipeline_model_parallel_size, counts]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_megatrons_parser_reads_the_stages_of_every_rank() -> None:
    if find_spec("megatron") is None or find_spec("torch") is None:
        pytest.skip("megatron-core and torch read layouts")
    cases = [(counts, size) for counts, size in counts_of_sizes() if len(counts) > 1]
    layouts = json.dumps([(megatron_layout(counts), size) for counts, size in cases])
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, input=layouts, capture_output=True, text=True, check=True)
    for (counts, size), line in zip(cases, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == [len(counts) // size, [counts[rank::size] for rank in range(size)]]


def counts_of_sizes() -> Iterator[tuple[list[int], int]]:
    """The blocks of all stages, and the devices, of plans that Megatron-LM runs."""
    for n_blocks, n_devices, knobs in plans():
        if knobs["schedule"] in ORDERS_OF_MEGATRON:
            partition = evenly(n_blocks, n_devices * knobs["stages_per_device"])
            yield [(stop - start) // 2 for start, stop in pairwise(partition)], n_devices


def test_chunks_of_a_device_are_parts_of_the_layout(chain: MakeChain, tmp_path: Path) -> None:
    knobs = {"schedule": Order.INTERLEAVED, "stages_per_device": 2, "n_micro_batches": 8}
    made = deployment(graph_of_blocks(chain), [0, 2, 6, 8, 12], **knobs)
    write_artifact(made, "megatron", tmp_path / "artifact")
    text = (tmp_path / "artifact" / "megatron.sh").read_text()
    assert "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t*2|t|t*2L' " in text
    (tmp_path / "artifact" / "megatron.sh").write_text(text.replace("-size 2 --pipeline", "-size 4 --pipeline"))
    failed = [each.what for each in check(made, tmp_path / "artifact") if each.passed is False]
    assert failed == ["every device runs the stages and the micro-batches of the plan in its order"]


def unrolled(layout: str) -> list[str]:
    """A layout letter by letter: a number after * repeats the letter before it."""
    stages = [""]
    letters = iter(layout)
    for letter in letters:
        if letter == "|":
            stages.append("")
        elif letter == "*":
            stages[-1] += stages[-1][-1] * (int(next(letters)) - 1)
        else:
            stages[-1] += letter
    return stages


def test_megatron_reads_the_layout_of_the_plan(chain: MakeChain, tmp_path: Path) -> None:
    made = deployment(graph_of_blocks(chain), PARTITION, schedule=Order.ONE_F_ONE_B, n_micro_batches=8)
    written(made, "megatron", tmp_path / "artifact")
    words = sourced(tmp_path / "artifact", "megatron.sh", 'printf "%s\\n" "${PIPELINE_ARGS[@]}"').split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert unrolled(options.pop("--pipeline-model-parallel-layout")) == ["Et", "ttt", "ttL"]
    assert options == {
        "--num-layers": "6",
        "--pipeline-model-parallel-size": "3",
        "--micro-batch-size": "4",
        "--global-batch-size": "32",
    }


def test_one_stage_of_megatron_has_no_layout(chain: MakeChain, tmp_path: Path) -> None:
    files = written(deployment(graph_of_blocks(chain), [0, 12]), "megatron", tmp_path / "artifact")
    assert "layout" not in files["megatron.sh"]


def test_a_layout_of_megatron_is_read_back() -> None:
    for counts in ([1], [1, 1], [3, 4], [12, 1, 10], [61]):
        assert megatron_counts(megatron_layout(counts)) == counts


def test_the_example_of_megatron_is_read() -> None:
    """Of [megatron-layout]: 61 decoder layers, then a stage of multi-token prediction and one of the loss."""
    assert megatron_counts("Et*3|(tt|)*29,m|L") == [3, *[2] * 29, 0, 0]
