"""Export models that no test has, with random weights: `python studies/unseen_models.py FOLDER [NAME ...]`.

Each is written by both of PyTorch's exporters, `NAME-dynamo.onnx` and `NAME-script.onnx`, for one sample. Depths are
those of the published models only where layers differ; `studies/operator_table.py FOLDER/*.onnx` prints their shares.
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


def main(argv: Sequence[str] | None = None) -> int:
    """Export the named models, all of them without a name, and print every file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.names) - set(MODELS)):
        parser.error(f"NAME must be one of {', '.join(MODELS)}; got {', '.join(unknown)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or MODELS:
        try:
            module, example = _make(name)
        except ImportError as error:
            print(f"unseen_models needs other packages: {error}; try: pip install {' '.join(NEEDS)}", file=sys.stderr)
            return 2
        for exporter in EXPORTERS:
            path = args.folder / f"{name}-{exporter}.onnx"
            _export(module, example, path, exporter)
            print(f"{path.name}: {path.stat().st_size / 2**20:.0f} MiB")
    return 0


def _make(name: str) -> tuple[Any, Any]:
    """A module that returns the first output of a model, and its input."""
    torch, transformers = import_module("torch"), import_module("transformers")
    model_class, config_class, changed, shape = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**changed)).eval()
    forward: Callable[..., Any] = model.forward
    model.forward = lambda values: forward(values)[0]
    return model, torch.ones(shape, dtype=torch.int64 if len(shape) == 2 else torch.float32)


def _export(module: Any, example: Any, path: Path, exporter: str) -> None:
    torch = import_module("torch")
    options: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    if exporter == "script":
        options = {"dynamo": False, "opset_version": SCRIPT_OPSET}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), path, **options)


if __name__ == "__main__":
    sys.exit(main())
