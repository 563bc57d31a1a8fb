"""What is true of one serving engine stands in its file: no other file of the package has its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from autoauto.engines.registry import ENGINES

Texts = Mapping[Path, str]
NAMES = {name for engine in ENGINES.values() for name in (engine.name, engine.title, engine.launcher.to)}
NAMED = re.compile("|".join(re.escape(name) for name in sorted(NAMES)), re.IGNORECASE)


def test_no_file_outside_engines_names_an_engine(texts: Texts) -> None:
    package = {path: text for path, text in texts.items() if path.parts[0] == "autoauto" and path.parts[1] != "engines"}
    assert len(package) > 100
    named = {str(path): NAMED.findall(text) for path, text in package.items()}
    assert {path: names for path, names in named.items() if names} == {}


def test_names_are_found_in_any_spelling() -> None:
    assert NAMED.findall("a vLLM, TensorRT-LLM, trtllm and VLLM_PORT") == ["vLLM", "TensorRT-LLM", "trtllm", "VLLM"]
