"""Folders of decoders with a `config.json`, as Hugging Face writes them."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 6,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Six blocks of a Llama of 1B weights, whose head costs as much as several of them."""


def decoder_folder(folder: Path, **changes: object) -> Path:
    """A folder with the config of a small decoder, with other values where they are given."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return folder
