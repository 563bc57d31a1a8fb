"""The study that a test file is the twin of, as a module: `test_NAME.py` tests `studies/NAME.py`."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def study(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    name = Path(request.path).stem.removeprefix("test_")
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "studies" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]
