"""Values of a JSON document that know where they stand: `Field`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from autoauto.records.errors import BadInput

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Field:
    """A value inside a JSON document and where it stands, so that a complaint can name the place.

    >>> layers = Field({"layers": [{"cycles": 7}]}, "profile")["layers"]
    >>> layers.entries()[0]["cycles"].whole()
    7
    >>> layers.whole()
    Traceback (most recent call last):
    autoauto.records.errors.BadInput: profile.layers must be a whole number from 0 to 2**53, got [{'cycles': 7}]
    """

    value: Any
    where: str

    def __getitem__(self, key: str) -> Field:
        """The field `key` of an object.

        Raises:
            BadInput: this is no object, or it has no such field.
        """
        if not isinstance(self.value, dict) or key not in self.value:
            raise BadInput(f"{self.where} must be an object with a field {key}, got {self._brief()}; add the field")
        return Field(self.value[key], f"{self.where}.{key}")

    def get(self, key: str, default: object) -> Field:
        """The field `key` of an object, or `default` where it is missing.

        Raises:
            BadInput: this is no object.
        """
        missing = isinstance(self.value, dict) and key not in self.value
        return Field(default, f"{self.where}.{key}") if missing else self[key]

    def entries(self) -> list[Field]:
        """The entries of a list.

        Raises:
            BadInput: this is no list.
        """
        if not isinstance(self.value, list):
            raise BadInput(f"{self.where} must be a list, got {self._brief()}")
        return [Field(entry, f"{self.where}[{index}]") for index, entry in enumerate(self.value)]

    def text(self) -> str:
        """A text.

        Raises:
            BadInput: it is something else.
        """
        if not isinstance(self.value, str):
            raise BadInput(f"{self.where} must be a text, got {self._brief()}")
        return self.value

    def choice(self, choices: type[Choice]) -> Choice:
        """One of a few words.

        Raises:
            BadInput: it is something else.
        """
        if self.value not in list(choices):
            raise BadInput(f"{self.where} must be one of {', '.join(choices)}, got {self._brief()}")
        return choices(self.value)

    def truth(self) -> bool:
        """True or false.

        Raises:
            BadInput: it is something else.
        """
        if not isinstance(self.value, bool):
            raise BadInput(f"{self.where} must be true or false, got {self._brief()}")
        return self.value

    def whole(self, least: int = 0) -> int:
        """A whole number of cycles, bytes or samples; 7.0 is one.

        Raises:
            BadInput: it is less than `least`, above 2**53, or something else.
        """
        if not self._is_number() or self.value != int(self.value) or self.value < least:
            raise BadInput(f"{self.where} must be a whole number from {least} to 2**53, got {self._brief()}")
        return int(self.value)

    def whole_by_name(self) -> dict[str, int]:
        """An object whose fields are whole numbers.

        Raises:
            BadInput: this is no object, or one of its fields is something else.
        """
        if not isinstance(self.value, dict):
            raise BadInput(f"{self.where} must be an object of names and bytes, got {self._brief()}")
        return {name: self[name].whole() for name in self.value}

    def positive(self) -> float:
        """A number above 0.

        Raises:
            BadInput: it is 0 or less, above 2**53, or something else.
        """
        if not self._is_number() or self.value == 0:
            raise BadInput(f"{self.where} must be a number above 0, at most 2**53, got {self._brief()}")
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
