"""Every format of whole blocks: the same blocks in order, and one line where a plan does not have whole blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from autoauto.exporters.blocks.stages import blocks_of_stages
from autoauto.exporters.registry import write_artifact
from autoauto.records.errors import BadInput
from tests.exporters.block_plans import (
    FORMATS_OF_BLOCKS,
    N_BLOCKS,
    MakeChain,
    deployment,
    graph_of_blocks,
    stage_modules,
    written,
)

every_format = pytest.mark.parametrize("to", FORMATS_OF_BLOCKS)


@pytest.mark.parametrize("n_stages", range(1, N_BLOCKS + 1))
def test_stages_have_all_blocks_in_order_wherever_the_cuts_are(chain: MakeChain, n_stages: int) -> None:
    graph = graph_of_blocks(chain)
    for cuts in combinations(range(1, N_BLOCKS), n_stages - 1):
        stages = blocks_of_stages(deployment(graph, [0, *(2 * cut for cut in cuts), len(graph)]), "megatron")
        firsts = [int(blocks[0].module.removeprefix("layers.")) for blocks in stages]
        assert firsts == [0, *cuts]
        assert [block for blocks in stages for block in blocks] == list(graph.blocks)


@every_format
def test_an_artifact_shows_which_blocks_are_where(chain: MakeChain, tmp_path: Path, to: str) -> None:
    files = written(deployment(graph_of_blocks(chain), [0, 2, 8, 12]), to, tmp_path / "artifact")
    assert stage_modules(files) == [["layers.0"], ["layers.1", "layers.2", "layers.3"], ["layers.4", "layers.5"]]


@every_format
@pytest.mark.parametrize("partition", [[0, 12], [0, 2, 4, 6, 8, 10, 12]], ids=["one stage", "one block a stage"])
def test_the_fewest_and_the_most_stages_are_written(
    chain: MakeChain, tmp_path: Path, to: str, partition: list[int]
) -> None:
    files = written(deployment(graph_of_blocks(chain), partition), to, tmp_path / "artifact")
    assert len(stage_modules(files)) == len(partition) - 1


@every_format
def test_a_cut_inside_a_block_is_refused(chain: MakeChain, tmp_path: Path, to: str) -> None:
    made = deployment(graph_of_blocks(chain), [0, 5, 12])
    with pytest.raises(
        BadInput, match=r"^the cut before layer layer5 lies inside block layers.2; try --cut-at blocks$"
    ):
        write_artifact(made, to, tmp_path / "artifact")
    assert list(tmp_path.iterdir()) == []


@every_format
def test_a_model_without_blocks_is_refused(chain: MakeChain, tmp_path: Path, to: str) -> None:
    made = deployment(replace(graph_of_blocks(chain), blocks=()), [0, 4, 12])
    with pytest.raises(
        BadInput, match=r"needs a model with repeated modules like layers[.]0, chain has none; try --to onnx"
    ):
        write_artifact(made, to, tmp_path / "artifact")


@every_format
def test_a_stage_on_several_devices_is_refused(chain: MakeChain, tmp_path: Path, to: str) -> None:
    made = deployment(graph_of_blocks(chain), [0, 4, 12])
    first, second = made.plan.stages
    made = replace(made, plan=replace(made.plan, stages=(replace(first, n_replicas=2), replace(second, device=2))))
    with pytest.raises(BadInput, match="one device for a stage, got several; try --stage-replicas off"):
        write_artifact(made, to, tmp_path / "artifact")
