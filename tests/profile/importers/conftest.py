"""Small valid files of every recorded format, and the profiles of data/profiles/recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autoauto.profile.importers.layer_table import read_layer_table
from autoauto.profile.importers.onnxruntime_join import IMPORTER as ONNX_RUNTIME
from autoauto.profile.importers.recorded import RecordedProfile
from autoauto.profile.importers.tensorrt import read_tensorrt
from autoauto.profile.importers.torch_trace import read_torch_trace
from autoauto.records.installation import data_dir

RECORDED = data_dir() / "profiles" / "recorded"


class Recorded(NamedTuple):
    """A file of data/profiles/recorded, its second file, and what reads them."""

    read: Callable[[Path, Path | None, int | None], RecordedProfile]
    file: Path
    details: Path | None = None


FORMATS = {
    "csv": Recorded(read_layer_table, RECORDED / "blocks.csv"),
    "onnxruntime": Recorded(
        ONNX_RUNTIME.read, RECORDED / "squeezenet.onnxruntime.json", RECORDED / "squeezenet.memory.csv"
    ),
    "torch": Recorded(lambda path, details, _: read_torch_trace(path, details, 32), RECORDED / "blocks-32.torch.json"),
    "tensorrt": Recorded(
        lambda path, details, _: read_tensorrt(path, details, 8),
        RECORDED / "engine.profile.json",
        RECORDED / "engine.layers.json",
    ),
}


@pytest.fixture(params=FORMATS)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """A file of every format in turn."""
    return FORMATS[request.param]
