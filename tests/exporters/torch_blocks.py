"""A small transformer of PyTorch, exported and run in stages by programs of their own: `exported`, `run_in_stages`.

python torch_blocks.py export MODEL.onnx DYNAMO
python torch_blocks.py run N_STAGES FOLDER SPLIT_SPEC
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

N_MICRO_BATCHES = 3


def exported(path: Path, *, dynamo: bool) -> Path:
    """The transformer as an ONNX file; torch stays out of this process, and so do its warnings."""
    pytest.importorskip("torch")
    if dynamo and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("torch.onnx.export(dynamo=True) needs onnxscript")
    _run(
        subprocess.Popen(
            [sys.executable, __file__, "export", path, str(int(dynamo))], stderr=subprocess.PIPE, text=True
        )
    )
    return path


def run_in_stages(folder: Path, split: Path, n_stages: int) -> tuple[float, list[set[str]]]:
    """Run `torch.distributed.pipelining` with a process for every stage, forked by one that has imported it.

    They meet at a file.

    Returns:
        The largest difference from the whole model, and the names of the weights of every stage.
    """
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "run", str(n_stages), str(folder), str(split)]
    ranks = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        _run(ranks)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(n_stages)]
    return results[-1]["difference"], [set(result["weights"]) for result in results]


def _run(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors


def _transformer() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            normal = self.norm(x)
            x = x + self.attention(normal, normal, normal, need_weights=False)[0]
            y: torch.Tensor = x + self.mlp(x)
            return y

    class Transformer(nn.Module):
        def __init__(self, n_blocks: int = 5, width: int = 16, vocabulary_size: int = 50) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary_size, width)
            self.layers = nn.ModuleList(Block(width) for _ in range(n_blocks))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary_size)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x)
            y: torch.Tensor = self.head(self.norm(x))
            return y

    torch.manual_seed(0)
    return Transformer().eval()


def _export(path: str, dynamo: str) -> None:
    import torch

    tokens = torch.zeros((2, 8), dtype=torch.long)
    torch.onnx.export(_transformer(), (tokens,), path, dynamo=bool(int(dynamo)))


def _run_stages(n_stages: str, folder: str, split: str) -> None:
    import torch.distributed.pipelining  # noqa: F401  # takes longer than all else

    ranks = []
    for rank in range(int(n_stages)):
        ranks.append(os.fork())
        if not ranks[-1]:
            _run_stage(rank, int(n_stages), folder, split)
            return
    codes = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    assert not any(codes), codes


def _run_stage(rank: int, n_stages: int, folder: str, split: str) -> None:
    import torch
    from torch import distributed
    from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

    module, tokens = _transformer(), torch.randint(0, 50, (2 * N_MICRO_BATCHES, 8))
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=n_stages)
    split_spec = {name: SplitPoint[point] for name, point in json.loads(Path(split).read_text()).items()}
    with torch.no_grad():
        pipe = pipeline(module, mb_args=(tokens[:2],), split_spec=split_spec)
        assert pipe.num_stages == n_stages
        stage = pipe.build_stage(rank, torch.device("cpu"))
        output = ScheduleGPipe(stage, N_MICRO_BATCHES).step(*([] if rank else [tokens]))
        last = output is not None and rank == n_stages - 1
        difference = float((output - module(tokens)).abs().max()) if last else 0.0
    result = {"difference": difference, "weights": [name for name, _ in stage.submod.named_parameters()]}
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


if __name__ == "__main__":
    (_export if sys.argv[1] == "export" else _run_stages)(*sys.argv[2:])
