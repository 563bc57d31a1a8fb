"""The split of torch.distributed.pipelining, applied by real processes; the modules of stages for torchtitan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autoauto.evaluate.export import deployment as planned
from autoauto.evaluate.open import load_flow
from autoauto.exporters.registry import exporter_named
from autoauto.exporters.schedule_csv import schedule_to_csv
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from tests.exporters.block_plans import MakeChain, deployment, graph_of_blocks, stage_modules, written
from tests.exporters.torch_blocks import exported, run_in_stages

TRAINING = {"schedule": Order.GPIPE, "n_micro_batches": 8}


def test_the_split_is_before_the_first_block_of_every_stage_but_the_first(chain: MakeChain, tmp_path: Path) -> None:
    files = written(deployment(graph_of_blocks(chain), [0, 2, 8, 12]), "torch", tmp_path / "artifact")
    assert json.loads(files["split_spec.json"]) == {"layers.1": "BEGINNING", "layers.4": "BEGINNING"}


def test_a_split_for_training_comes_with_its_schedule_and_what_loads_both(chain: MakeChain, tmp_path: Path) -> None:
    made = deployment(graph_of_blocks(chain), [0, 6, 12], schedule=Order.ZB1P, n_micro_batches=8)
    files = written(made, "torch", tmp_path / "artifact")
    assert files["schedule.csv"] == schedule_to_csv(made.schedule)
    assert "def load(" in files["torch_pipeline.py"]
    (tmp_path / "artifact" / "schedule.csv").write_text("0F0,0B0\n1F0,1B0\n")
    verdicts = [check.passed for check in exporter_named("torch").check(made, tmp_path / "artifact")]
    assert verdicts == [True, False, None]


LOADING = """
from torch import distributed, nn, zeros
from torch_pipeline import load

module = nn.Module()
module.layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
module.forward = lambda x: module.layers(x)
distributed.init_process_group("gloo", init_method="file://{folder}/meeting", rank=0, world_size=1)
load(module, (zeros(1, 2),), nn.MSELoss())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cuts", "message"),
    [([0, 6, 12], "the plan has 2 devices, got 1 ranks"), ([0, 12], "the plan has 1 stages, the module got 2")],
)
def test_ranks_and_modules_of_other_plans_are_refused(
    chain: MakeChain, tmp_path: Path, cuts: list[int], message: str
) -> None:
    pytest.importorskip("torch")
    artifact = tmp_path / "artifact"
    written(deployment(graph_of_blocks(chain), cuts, **TRAINING), "torch", artifact)
    (artifact / "split_spec.json").write_text('{"layers.1": "BEGINNING"}')
    command = [sys.executable, "-c", LOADING.format(folder=tmp_path)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=artifact, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"ValueError: {message}")


def test_torchtitan_has_every_module_with_the_blocks_around_it(chain: MakeChain, tmp_path: Path) -> None:
    made = deployment(graph_of_blocks(chain), [0, 2, 8, 12], **TRAINING)
    files = written(made, "torchtitan", tmp_path / "artifact")
    assert tomllib.loads(files["torchtitan.toml"]) == {
        "parallelism": {
            "pipeline_parallel_schedule": "GPipe",
            "pipeline_parallel_degree": 3,
            "pipeline_parallel_microbatch_size": 4,
            "module_fqns_per_model_part": [
                ["embedding", "layers.0"],
                ["layers.1", "layers.2", "layers.3"],
                ["layers.4", "layers.5", "norm", "head"],
            ],
        },
        "training": {"local_batch_size": 32},
    }


def test_torchtitan_of_a_plan_for_inference_names_no_schedule(chain: MakeChain, tmp_path: Path) -> None:
    files = written(deployment(graph_of_blocks(chain), [0, 4, 12]), "torchtitan", tmp_path / "artifact")
    assert "schedule" not in files["torchtitan.toml"]


def test_torchtitan_has_not_every_schedule(chain: MakeChain, tmp_path: Path) -> None:
    made = deployment(graph_of_blocks(chain), [0, 4, 12], schedule=Order.ZB2P, n_micro_batches=8)
    with pytest.raises(BadInput, match="names the schedules gpipe, 1f1b, interleaved, got zb2p; try --schedule 1f1b"):
        written(made, "torchtitan", tmp_path / "artifact")


def test_a_file_with_other_stages_fails_its_check(chain: MakeChain, tmp_path: Path) -> None:
    made = deployment(graph_of_blocks(chain), [0, 2, 8, 12])
    written(made, "torch", tmp_path / "artifact")
    (tmp_path / "artifact" / "split_spec.json").write_text('{"layers.2": "BEGINNING", "layers.4": "BEGINNING"}')
    verdicts = [check.passed for check in exporter_named("torch").check(made, tmp_path / "artifact")]
    assert verdicts == [False, None]


@pytest.mark.slow
@pytest.mark.parametrize(("dynamo", "n_stages"), [(False, 2), (True, 3)])
def test_processes_that_apply_the_split_compute_what_the_module_does(
    tmp_path: Path, dynamo: bool, n_stages: int
) -> None:
    model = exported(tmp_path / "model.onnx", dynamo=dynamo)
    flow = load_flow(model, "bow-2000", cut_at="blocks")
    trial = flow.expect(Knobs(n_ipu=n_stages, memory_proportion=0.6, batch_size=1))
    files = written(planned(flow, str(model), trial), "torch", tmp_path / "artifact")
    difference, weights = run_in_stages(tmp_path, tmp_path / "artifact" / "split_spec.json", n_stages)
    assert difference < 1e-5
    blocks_of_ranks = [{".".join(name.split(".")[:2]) for name in names if "layers." in name} for names in weights]
    assert blocks_of_ranks == list(map(set, stage_modules(files)))
    assert "embedding.weight" in weights[0]
    assert {"norm.weight", "head.weight"} <= weights[-1]
