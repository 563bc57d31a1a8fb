"""Random decoders as GGUF files: `write_model`."""

from pathlib import Path

import numpy as np
import pytest


def write_model(path: Path, n_layers: int = 3, hidden: int = 128, n_words: int = 400) -> None:
    """A random decoder in Q8_0."""
    gguf = pytest.importorskip("gguf", reason="the package gguf of extra dev writes the model")
    q8_0, random = gguf.GGMLQuantizationType.Q8_0, np.random.default_rng(0)
    words = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    words += [f"w{i}" for i in range(n_words - len(words))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(1024)
    writer.add_embedding_length(hidden)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(3 * hidden)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // 4)
    writer.add_vocab_size(n_words)
    writer.add_file_type(7)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([-float(i) for i in range(n_words)])
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (n_words - 259)])

    def matrix(name: str, n_rows: int, n_columns: int) -> None:
        weights = (random.standard_normal((n_rows, n_columns)) / n_columns**0.5).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, q8_0), raw_dtype=q8_0)

    matrix("token_embd", n_words, hidden)
    matrix("output", n_words, hidden)
    norms = ["output_norm"]
    for i in range(n_layers):
        for name, shape in {
            "attn_q": (hidden, hidden),
            "attn_k": (hidden // 2, hidden),
            "attn_v": (hidden // 2, hidden),
            "attn_output": (hidden, hidden),
            "ffn_gate": (3 * hidden, hidden),
            "ffn_up": (3 * hidden, hidden),
            "ffn_down": (hidden, 3 * hidden),
        }.items():
            matrix(f"blk.{i}.{name}", *shape)
        norms += [f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm"]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
