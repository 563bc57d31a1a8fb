"""Profiles as JSON files, `save_profile` and `load_profile`; and checked reading of any JSON document, `Field`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from autoauto.records.errors import BadInput
from autoauto.records.profile import PROFILE_SCHEMA, CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision

Choice = TypeVar("Choice", bound=StrEnum)

STORED_NAMES = {"stashed_input_bytes": "kept_input_bytes"}
"""Fields of a `LayerProfile` that have another name in stored profiles."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value inside a JSON document and its path, so that an error can name the field.

    >>> layers = Field({"layers": [{"cycles": 7}]}, "profile")["layers"]
    >>> layers.entries()[0]["cycles"].whole()
    7
    >>> layers.whole()
    Traceback (most recent call last):
    autoauto.records.errors.BadInput: profile.layers must be a whole number from 0 to 2**53, got [{'cycles': 7}]
    """

    value: Any
    path: str

    def __getitem__(self, key: str) -> Field:
        """The field `key` of an object.

        Raises:
            BadInput: this is no object, or it has no such field.
        """
        if not isinstance(self.value, dict) or key not in self.value:
            raise BadInput(f"{self.path} must be an object with a field {key}, got {self._brief()}; add the field")
        return Field(self.value[key], f"{self.path}.{key}")

    def get(self, key: str, default: object) -> Field:
        """The field `key` of an object, or `default` where it is missing.

        Raises:
            BadInput: this is no object.
        """
        missing = isinstance(self.value, dict) and key not in self.value
        return Field(default, f"{self.path}.{key}") if missing else self[key]

    def entries(self) -> list[Field]:
        """The entries of a list.

        Raises:
            BadInput: this is no list.
        """
        if not isinstance(self.value, list):
            raise BadInput(f"{self.path} must be a list, got {self._brief()}")
        return [Field(entry, f"{self.path}[{index}]") for index, entry in enumerate(self.value)]

    def text(self) -> str:
        """A text.

        Raises:
            BadInput: it is something else.
        """
        if not isinstance(self.value, str):
            raise BadInput(f"{self.path} must be a text, got {self._brief()}")
        return self.value

    def choice(self, choices: type[Choice]) -> Choice:
        """One of a few words.

        Raises:
            BadInput: it is something else.
        """
        if self.value not in list(choices):
            raise BadInput(f"{self.path} must be one of {', '.join(choices)}, got {self._brief()}")
        return choices(self.value)

    def truth(self) -> bool:
        """True or false.

        Raises:
            BadInput: it is something else.
        """
        if not isinstance(self.value, bool):
            raise BadInput(f"{self.path} must be true or false, got {self._brief()}")
        return self.value

    def whole(self, minimum: int = 0) -> int:
        """A whole number of cycles, bytes or samples; 7.0 is one.

        Raises:
            BadInput: it is less than `minimum`, above 2**53, or something else.
        """
        if not self._is_number() or self.value != int(self.value) or self.value < minimum:
            raise BadInput(f"{self.path} must be a whole number from {minimum} to 2**53, got {self._brief()}")
        return int(self.value)

    def whole_by_name(self) -> dict[str, int]:
        """An object whose fields are whole numbers.

        Raises:
            BadInput: this is no object, or one of its fields is something else.
        """
        if not isinstance(self.value, dict):
            raise BadInput(f"{self.path} must be an object of names and bytes, got {self._brief()}")
        return {name: self[name].whole() for name in self.value}

    def positive(self) -> float:
        """A number above 0.

        Raises:
            BadInput: it is 0 or less, above 2**53, or something else.
        """
        if not self._is_number() or self.value == 0:
            raise BadInput(f"{self.path} must be a number above 0, at most 2**53, got {self._brief()}")
        return float(self.value)

    def _is_number(self) -> bool:
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return is_number and 0 <= self.value <= 2**53  # false for NaN

    def _brief(self) -> str:
        shown = (
            f"an object with {', '.join(self.value) or 'no field'}"
            if isinstance(self.value, dict)
            else repr(self.value)
        )
        return shown if len(shown) <= 80 else f"{shown[:77]}..."


def save_profile(profile: ModelProfile, path: Path) -> None:
    """Write `profile` as JSON.

    Raises:
        BadInput: the file cannot be written.
    """
    write_json(profile_record(profile), path)


def profile_record(profile: ModelProfile) -> dict[str, Any]:
    """A profile as plain values, with its field names as keys except for `STORED_NAMES`."""
    return asdict(profile) | {"layers": [layer_record(layer) for layer in profile.layers]}


def load_profile(path: Path) -> ModelProfile:
    """Read a profile that `save_profile` wrote.

    Raises:
        BadInput: no such file, not JSON, another schema, or a field that is missing or wrong; the message names it.
    """
    root = Field(read_json(path), f"{path}: profile")
    schema = root["schema"]
    if schema.value != PROFILE_SCHEMA:
        raise BadInput(f"{schema.path} must be {PROFILE_SCHEMA}, got {schema.value!r}; try `autoauto profile` again")
    columns = [root[column].entries() for column in ("names", "kinds", "tied", "layers")]
    names, kinds, tied, layers = columns
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1 or not layers:
        raise BadInput(f"{root.path} needs names, kinds, tied and layers of one length, at least 1, got {lengths}")
    return ModelProfile(
        model=root["model"].text(),
        target=root["target"].text(),
        options=_options(root["options"]),
        names=tuple(name.text() for name in names),
        kinds=tuple(kind.text() for kind in kinds),
        tied=tuple(None if key.value is None else key.text() for key in tied),
        layers=tuple(layer_profile(layer) for layer in layers),
    )


def layer_record(layer: LayerProfile) -> dict[str, Any]:
    """A layer's profile as plain values, with its field names as keys except for `STORED_NAMES`."""
    return {STORED_NAMES.get(name, name): value for name, value in asdict(layer).items()}


def layer_profile(layer: Field) -> LayerProfile:
    """Read a layer's profile that `layer_record` made.

    Raises:
        BadInput: a field is missing or wrong; the message names it.
    """
    return LayerProfile(
        forward_cycles=layer["forward_cycles"].whole(),
        backward_cycles=layer["backward_cycles"].whole(),
        shared=layer["shared"].whole_by_name(),
        exclusive=layer["exclusive"].whole_by_name(),
        temporary_bytes=layer["temporary_bytes"].whole(),
        carried_bytes=layer["carried_bytes"].whole(),
        input_bytes=layer["input_bytes"].whole(),
        output_bytes=layer["output_bytes"].whole(),
        activation_bytes=layer["activation_bytes"].whole(),
        weight_cycles=layer["weight_cycles"].whole(),
        stashed_input_bytes=layer[STORED_NAMES["stashed_input_bytes"]].whole(),
    )


def _options(options: Field) -> CompileOptions | None:
    if options.value is None:
        return None
    return CompileOptions(
        batch_size=options["batch_size"].whole(minimum=1),
        memory_proportion=options["memory_proportion"].positive(),
        precision=options["precision"].choice(Precision),
        training=options["training"].truth(),
    )


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write plain values as a JSON file.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the profile needs a file that can be written, got {path} ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        BadInput: no such file, or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"a JSON file must be readable, {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"a file must hold JSON, {path}: {error}; correct the file") from error
