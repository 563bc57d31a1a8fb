"""Files of recorded profiles with random mistakes are read, or refused in one line; never is there another error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest

from autoauto.profile.importers.recorded import ProfileTarget, RecordedProfile, line_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.units import Precision
from studies.mutations import mutated_bytes, mutated_structure, small_trace
from tests.profile.importers.conftest import Recorded

N_MUTATIONS = 200


def check_one_line(error: BadInput) -> None:
    assert "\n" not in str(error)
    assert "\r" not in str(error)


def use(profile: RecordedProfile) -> None:
    """What a plan does with a profile."""
    graph, target = line_graph(profile), ProfileTarget(profile)
    device = Device("d", 1e9, 1e9, 1, 1)
    for training in {False, profile.trains}:
        options = CompileOptions(profile.batch_sizes[0], Precision.FP32, training)
        target.profile(graph, device, options)


@pytest.mark.parametrize("second", [False, True])
def test_mutations_of_bytes_and_structure(recorded: Recorded, second: bool, tmp_path: Path) -> None:
    if second and recorded.details is None:
        pytest.skip("the format has one file")
    random, n_refused = Random(7), 0
    original = (recorded.details if second and recorded.details else recorded.file).read_bytes()
    is_json = original.lstrip()[:1] in (b"[", b"{")
    content = small_trace(original)
    path = tmp_path / recorded.file.name
    for number in range(N_MUTATIONS):
        if is_json and number % 2:
            path.write_text(json.dumps(mutated_structure(json.loads(content), random)))
        else:
            path.write_bytes(mutated_bytes(content, random))
        files = (recorded.file, path) if second else (path, recorded.details)
        try:
            use(recorded.read(*files, None))
        except BadInput as error:
            check_one_line(error)
            n_refused += 1
    assert 0 < n_refused < N_MUTATIONS


def test_without_a_mutation_all_are_read(recorded: Recorded) -> None:
    use(recorded.read(recorded.file, recorded.details, None))


def test_packed_files_are_read_as_they_are(recorded: Recorded, tmp_path: Path) -> None:
    """PyTorch writes packed traces with `tensorboard_trace_handler(use_gzip=True)`; others are packed by people."""
    packed = []
    for file in filter(None, (recorded.file, recorded.details)):
        packed.append(tmp_path / f"{file.name}.gz")
        packed[-1].write_bytes(gzip.compress(file.read_bytes()))
    profile = recorded.read(packed[0], packed[1] if recorded.details else None, None)
    assert profile.layers_at == recorded.read(recorded.file, recorded.details, None).layers_at
