"""The study of families fits a line a group to even rows, and none to plain dense models."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from autoauto.records.installation import gpu_tables_dir

pytest.importorskip("aiconfigurator_core", reason="it has the measured rows")


def test_even_rows_of_a_mixture_have_lines_and_others_none(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    folder = gpu_tables_dir()
    assert folder is not None
    with (folder / "systems" / "silicon_sample.csv").open(newline="") as file:
        every = [row for row in csv.DictReader(file) if row["mode"] == "agg" and row["backend"] == "vllm"]
    of_mixture = (row for row in every if row["model_path"] == "openai/gpt-oss-120b" and row["system"] == "h100_sxm")
    of_dense = (row for row in every if row["model_path"] == "Qwen/Qwen3-32B")
    some = [*islice(of_mixture, 30), *islice(of_dense, 4)]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, every[0])
        writer.writeheader()
        writer.writerows(some)
    others, family, system = csv.DictReader(run_script("gpu_family_errors", "--rows", str(path)))
    assert (others["family"], others["n_rows"]) == ("", "0")
    n_even = sum(zlib.crc32(row["id"].encode()) % 2 == 0 for row in some[:30])
    for line in (family, system):
        assert (line["family"], line["engine"]) == ("GptOssForCausalLM", "vllm")
        assert 0 < int(line["n_rows"]) <= n_even
        assert 0.2 < float(line["factor"]) < 5
    assert (family["system"], system["system"]) == ("", "h100_sxm")
