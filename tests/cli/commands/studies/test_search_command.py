"""The command that asks for a search, of its request: reading it gives the request again."""

import shlex
from typing import Any

import pytest

from autoauto.cli.commands.studies import search
from autoauto.cli.commands.studies.commands_to_copy import search_command
from autoauto.cli.options.parser import Parser
from autoauto.cli.submission import request_of_json
from autoauto.server.store.submission import Submission
from autoauto.space.requests.request import SearchRequest
from autoauto.study.methods.registry import method_for


def request_of_command(command: str) -> SearchRequest:
    program, name, *words = shlex.split(command)
    assert (program, name) == ("autoauto", "search")
    parser = Parser(prog="autoauto search")
    search.add_arguments(parser)
    args = parser.parse_args(words)
    args.method = method_for(args.objective, args.method)
    return SearchRequest.of(vars(args))


@pytest.mark.parametrize(
    "submission",
    [
        {},
        {"model": "bert-base-128", "cluster": "c600", "space": {"n_ipu": [1, 2], "batch_size": {"from": 1, "to": 9}}},
        {"model": "sha256:" + 64 * "a", "space": {"memory_proportion": [0.3, 0.6], "io_tiles": [0, 32]}, "repeats": 0},
        {"constraints": ["latency_s <= 0.002", "n_ipu * replicas <= 4"], "objective": ["throughput", "latency"]},
        {"mode": "training", "space": {"schedule": ["gpipe", "1f1b"], "recompute": [True, False, "auto"]}},
        {"mode": "training", "global_batch": 64, "time_budget": 1.5, "synthetic_data": True, "headroom": 0.1},
        {"target": "gpu", "model": "Qwen/Qwen3-8B", "space": {"tensor_parallel": [1, 2], "cuda_graph": [True]}},
        {"target": "host", "space": {"runtime": ["onnxruntime"], "spinning": [False]}, "noise": 0.05},
        {"target": "host", "quick": True},
        {"method": "random", "n_measurements": 9, "try": ["n_ipu=1,batch_size=2"], "precision": "fp16"},
    ],
)
def test_the_command_of_a_request_asks_for_the_same(submission: dict[str, Any]) -> None:
    request = Submission.of(request_of_json(search.add_arguments, submission)).request
    command = search_command(request)
    assert Submission.of(request_of_command(command)).digest == Submission.of(request).digest, command
