"""Whether an ONNX file holds all its values, or names other files that do: `check_one_file`.

ONNX may say of every stored tensor that its values lie in another file. Tensors are in initializers, dense and sparse,
in attributes of nodes, and in bodies, functions and training graphs. So the file is walked as what it is, protobuf
messages in each other, by onnx's own description of them: no place can be forgotten, no value is read, and no other
file is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from mmap import ACCESS_READ, mmap
from os import SEEK_END
from typing import TYPE_CHECKING, BinaryIO

from autoauto.records.errors import BadInput, UnreadableModel

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MAX_FIELDS = 4_000_000
"""Maximum number of fields, which takes seconds to read; a large model has a hundred thousand."""
_LOCATION = b"location"
"""The key under which a tensor names another file, as bytes of the file; without it no tensor does."""
_VARINT, _FIXED_64, _MESSAGE, _FIXED_32 = 0, 1, 2, 5
"""Wire types of protobuf: how a field is written."""
_MAX_VARINT_BYTES, _MAX_TAG = 10, (1 << 32) - 1
_TENSOR = "onnx.TensorProto"


class NamesOtherFiles(UnreadableModel):
    """A model keeps values in other files than its own."""


def check_one_file(file: BinaryIO) -> None:
    """Make sure that a file does not name others that hold its values.

    Raises:
        NamesOtherFiles: it does.
        UnreadableModel: it is no complete ONNX file, or has more than `MAX_FIELDS` fields.
    """
    if not file.seek(0, SEEK_END):
        raise _incomplete()  # no empty file can be mapped
    with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if content.find(_LOCATION) >= 0:
            _walk(content)


def refuse_other_files(file: BinaryIO, about: str = "") -> None:
    """Refuse an ONNX model that names other files; a file that is no model is refused by its search.

    Raises:
        BadInput: it is one; the message begins with `about`.
    """
    with suppress(UnreadableModel):
        try:
            check_one_file(file)
        except NamesOtherFiles as error:
            raise BadInput(f"{about}{error}") from error


def _walk(content: mmap) -> None:
    """Read the heads of all fields of messages that may have a tensor in them.

    field:    tag: number << 3 | wire type, a varint
              then a varint │ 4 or 8 bytes │ a length, a varint, and so many bytes: a text, or another message
    """
    from onnx import ModelProto

    # A list of what is left, no recursion: a file decides how deep messages lie in each other.
    messages = [(ModelProto.DESCRIPTOR, 0, len(content))]
    n_fields = 0
    while messages:
        message, position, stop = messages.pop()
        inner = _inner(message)
        is_tensor = message.full_name == _TENSOR
        while position < stop:
            n_fields += 1
            if n_fields > MAX_FIELDS:
                raise UnreadableModel(f"a model has at most {MAX_FIELDS:,} fields in its file, this one more")
            tag, position = _varint(content, position, stop)
            number, kind = tag >> 3, tag & 7
            value = 0
            if kind == _VARINT:
                value, position = _varint(content, position, stop)
            elif kind == _MESSAGE:
                n_bytes, start = _varint(content, position, stop)
                position = start + n_bytes
                if number in inner:
                    messages.append((inner[number], start, position))
            elif kind in (_FIXED_32, _FIXED_64):
                position += 4 if kind == _FIXED_32 else 8
            else:
                raise _incomplete()
            if position > stop or number == 0 or tag > _MAX_TAG:
                raise _incomplete()
            if is_tensor and (number == _number("external_data") or (number == _number("data_location") and value)):
                raise NamesOtherFiles(
                    "a model here is one file with its weights, this one keeps some in other files; save it as one "
                    "with onnx.save_model"
                )


@cache
def _inner(message: Descriptor) -> Mapping[int, Descriptor]:
    """The fields of a message that may have a tensor in them, and what they are."""
    fields = {field.number: field.message_type for field in message.fields if field.message_type is not None}
    return {number: each for number, each in fields.items() if _reaches_tensor(each, frozenset())}


def _reaches_tensor(message: Descriptor, above: frozenset[str]) -> bool:
    if message.full_name == _TENSOR:
        return True
    inner = (field.message_type for field in message.fields if field.message_type is not None)
    seen = above | {message.full_name}
    return any(_reaches_tensor(each, seen) for each in inner if each.full_name not in seen)


@cache
def _number(name: str) -> int:
    from onnx import TensorProto

    return int(TensorProto.DESCRIPTOR.fields_by_name[name].number)


def _varint(content: mmap, position: int, stop: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and where what follows begins."""
    value = shift = 0
    for each in range(position, min(stop, position + _MAX_VARINT_BYTES)):
        byte = content[each]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, each + 1
        shift += 7
    raise _incomplete()


def _incomplete() -> UnreadableModel:
    return UnreadableModel("a model must be a complete ONNX file, this is none; export or copy it again")
