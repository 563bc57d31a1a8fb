"""Export models that no test has, with random weights: `python studies/unseen_models.py FOLDER [NAME ...]`.

Each is written by both of PyTorch's exporters, `NAME-dynamo.onnx` and `NAME-script.onnx`, for one sample; CLIP has 100
texts for it, whatever the batch. Depths are those of the published models only where layers differ;
`studies/operator_table.py FOLDER/*.onnx` prints their shares.
Needs the packages of `make_models.NEEDS`, none of which autoauto depends on.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from studies.make_models import NEEDS

EXPORTERS = ("dynamo", "script")
SCRIPT_OPSET = 17
_IMAGE = (1, 3, 224, 224)
_DISENTANGLED: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
}

# name: class and config of transformers, what differs from its defaults, shape of the input (of integers with two axes)
MODELS: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "clip-text": ("CLIPTextModel", "CLIPTextConfig", {"num_hidden_layers": 2}, (1, 77)),
    "convnext": ("ConvNextModel", "ConvNextConfig", {"depths": [2, 2, 2, 2]}, _IMAGE),
    "deberta": ("DebertaModel", "DebertaConfig", {"num_hidden_layers": 2, **_DISENTANGLED}, (1, 384)),
    "deberta-base": ("DebertaModel", "DebertaConfig", _DISENTANGLED, (1, 384)),
    "deberta-v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        {
            "hidden_size": 768,
            "num_attention_heads": 12,
            "num_hidden_layers": 2,
            "intermediate_size": 3072,
            "position_buckets": 256,
            "share_att_key": True,
            **_DISENTANGLED,
        },
        (1, 384),
    ),
    "efficientnet": (
        "EfficientNetModel",
        "EfficientNetConfig",
        {"width_coefficient": 1.0, "depth_coefficient": 1.0, "image_size": 224, "hidden_dim": 1280},
        _IMAGE,
    ),
    "mobilenet": ("MobileNetV2Model", "MobileNetV2Config", {}, _IMAGE),
    "roformer": ("RoFormerModel", "RoFormerConfig", {"num_hidden_layers": 2, "vocab_size": 30000}, (1, 128)),
    "swin": ("SwinModel", "SwinConfig", {"depths": [2, 2, 2, 2]}, _IMAGE),
    "swin-large-384": (
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 384,
            "embed_dim": 192,
            "depths": [2, 2, 18, 2],
            "num_heads": [6, 12, 24, 48],
            "window_size": 12,
            "num_labels": 1000,
        },
        (1, 3, 384, 384),
    ),
    "swin-tiny": ("SwinForImageClassification", "SwinConfig", {"num_labels": 1000}, _IMAGE),
    "t5": ("T5EncoderModel", "T5Config", {"num_layers": 2}, (1, 128)),
}
_ROFORMER_V2: dict[str, Any] = {
    "hidden_size": 384,
    "num_attention_heads": 6,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
    "hidden_act": "relu",
    "vocab_size": 12000,
}  # [roformer-v2]


def main(argv: Sequence[str] | None = None) -> int:
    """Export the named models, all of them without a name, and print every file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.names) - set(NAMES)):
        parser.error(f"NAME must be one of {', '.join(NAMES)}; got {', '.join(unknown)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or NAMES:
        try:
            module, examples = _make(name)
        except ImportError as error:
            print(f"unseen_models needs other packages: {error}; try: pip install {' '.join(NEEDS)}", file=sys.stderr)
            return 2
        for exporter in EXPORTERS:
            path = args.folder / f"{name}-{exporter}.onnx"
            _export(module, examples, path, exporter)
            print(f"{path.name}: {path.stat().st_size / 2**20:.0f} MiB")
    return 0


def _make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A module that returns the first output of a model, and its inputs."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    if name in MAKERS:
        return MAKERS[name](torch, transformers)
    model_class, config_class, changed, shape = MODELS[name]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**changed)).eval()
    forward: Callable[..., Any] = model.forward
    model.forward = lambda values: forward(values)[0]
    return model, (torch.ones(shape, dtype=torch.int64 if len(shape) == 2 else torch.float32),)


def _clip(torch: Any, transformers: Any) -> tuple[Any, tuple[Any, ...]]:
    """CLIP ViT-B/32, an image beside 100 texts; the end of a text is its largest token."""
    config = transformers.CLIPConfig(text_config={"eos_token_id": 2})
    model = transformers.CLIPModel(config).eval()
    forward: Callable[..., Any] = model.forward
    model.forward = lambda image, texts: forward(input_ids=texts, pixel_values=image).logits_per_image
    return model, (torch.ones(_IMAGE), torch.ones((100, 77), dtype=torch.int64))


def _roformer_v2(torch: Any, transformers: Any) -> tuple[Any, tuple[Any, ...]]:
    """RoFormerV2-small with a classifier: RoFormer whose encoder has no biases, and norms by the mean square alone."""
    model = transformers.RoFormerForSequenceClassification(transformers.RoFormerConfig(**_ROFORMER_V2)).eval()
    parts = [(owner, name, part) for owner in model.roformer.modules() for name, part in owner.named_children()]
    for owner, name, part in parts:
        if isinstance(part, torch.nn.LayerNorm):
            setattr(owner, name, _mean_square_norm(torch))
        elif isinstance(part, torch.nn.Linear):
            part.bias = None
        elif hasattr(part, "apply_rotary_position_embeddings"):
            part.apply_rotary_position_embeddings = _rotate_both(torch)
    forward: Callable[..., Any] = model.forward

    def classify(tokens: Any, types: Any, mask: Any) -> Any:
        added = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0  # what transformers adds to the scores
        return forward(tokens, attention_mask=added, token_type_ids=types)[0]

    model.forward = classify
    return model, tuple(torch.ones((1, 128), dtype=torch.int64) for _ in range(3))


def _mean_square_norm(torch: Any) -> Any:
    norm = torch.nn.Identity()
    norm.forward = lambda x: x / torch.sqrt(torch.mean(torch.square(x), dim=-1, keepdim=True) + 1e-12)
    return norm


def _rotate_both(torch: Any) -> Callable[..., tuple[Any, ...]]:
    """Queries and keys, turned by their positions, pair by pair."""

    def rotate(x: Any, sine: Any, cosine: Any) -> Any:
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1).flatten(-2, -1)

    return lambda positions, *both: tuple(rotate(x, *positions.chunk(2, dim=-1)) for x in both)


def _export(module: Any, examples: tuple[Any, ...], path: Path, exporter: str) -> None:
    torch = import_module("torch")
    options: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    if exporter == "script":
        options = {"dynamo": False, "opset_version": SCRIPT_OPSET}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, examples, path, **options)


MAKERS: dict[str, Callable[[Any, Any], tuple[Any, tuple[Any, ...]]]] = {
    "clip": _clip,
    "roformer-v2-small": _roformer_v2,
}
NAMES = (*MODELS, *MAKERS)

if __name__ == "__main__":
    sys.exit(main())
