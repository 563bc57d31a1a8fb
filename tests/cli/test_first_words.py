"""What newcomers type wrong is answered in one line: what holds, what was given, what to try."""

from __future__ import annotations

import pytest

from autoauto.cli.main import main

pytest.importorskip("aiconfigurator_core", reason="names of language models are of extra gpu")

QWEN = "Qwen/Qwen3-8B"
REFUSED = {
    f"search {QWEN} --cluster cpu": ("language model", QWEN, f"autoauto search {QWEN} --cluster 8xH100"),
    f"search {QWEN} --target host": ("language model", QWEN, f"autoauto search {QWEN} --cluster 8xH100"),
    f"search {QWEN} --cluster c600": ("language model", QWEN, f"autoauto search {QWEN} --cluster 8xH100"),
    f"inspect {QWEN}": ("language model", QWEN, f"autoauto search {QWEN} --cluster 8xH100"),
    "search resnet50 --cluster 8xH100": ("decoder", "'resnet50'", "--cluster c600 or --cluster cpu"),
    "search mine.onnx --cluster 8xH100": ("decoder", "'mine.onnx'", "--cluster c600 or --cluster cpu"),
    "search resnet50 --cluster c600 --engine vllm": ("--target ipu", "--engine", "GPUs, --cluster 8xH100"),
    "search resnet50 --cluster c600 --isl 100": ("generates no text", "--input-tokens", "--cluster 8xH100"),
    "search resnet50 --cluster c600 --osl 100": ("tokens must be 1 or more", "0 and 100", "other models none"),
    f"search {QWEN} --cluster 8xH100 --measure 2 --dry-run": ("measures nothing", "--measure", "leave one"),
    "search an/other --cluster 8xH100": (
        "decoder",
        "'an/other'",
        "https://huggingface.co/an/other/resolve/main/config.json, then give ./other",
    ),
    "search https://huggingface.co/an/other --cluster 8xH100": ("decoder", "'an/other'", "then give ./other"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_refusal_says_what_holds_what_was_given_and_what_to_try(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    [message] = capsys.readouterr().err.splitlines()
    assert all(part in message for part in REFUSED[line]), message


@pytest.mark.parametrize("model", [QWEN, f"https://huggingface.co/{QWEN}"])
@pytest.mark.parametrize("cluster", ["h100_sxm-8", "H100_SXM-8", "8xH100"])
def test_names_and_addresses_of_people_are_understood(
    model: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", model, "--cluster", cluster]) == 0
    assert "tokens/s" in capsys.readouterr().out
