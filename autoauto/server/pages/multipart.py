"""A form with files, as multipart/form-data [rfc7578]: `read_form`.

    --B                                            B: the first line
    Content-Disposition: form-data; name="model"
                                                   an empty line
    resnet50
    --B
    Content-Disposition: form-data; name="model_file"; filename="net.onnx"
    Content-Type: application/octet-stream

    ...
    --B--

The body lies in a file and is never held in memory as a whole.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from mmap import ACCESS_READ, mmap
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import unquote

from autoauto.records.errors import BadInput
from autoauto.server.pages.forms import MAX_FIELDS, unique

MAX_HEAD_BYTES, MAX_BOUNDARY_BYTES, MAX_TEXT_BYTES = 4096, 72, 1 << 16
COPY_BYTES = 1 << 20
_END = b"\r\n\r\n"
_NAME = re.compile(rb'[;\s]name="([^"]{1,100})"')
_FILE_NAME = re.compile(rb';\s*filename="([^"]+)"')


class FormFile(NamedTuple):
    """A file of a form, which its reader closes: its name, and its content."""

    name: str
    content: BinaryIO


class Form(NamedTuple):
    """The content of a form: texts and files by the names of their fields; a field without a file is left out."""

    values: dict[str, str]
    files: dict[str, FormFile]


class _Part(NamedTuple):
    head: bytes
    start: int
    stop: int


def read_form(file: BinaryIO) -> Form:
    """Read a body that was saved.

    Raises:
        BadInput: it is no form, or it has too many or too long fields.
    """
    file.flush()
    try:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return _read(content)
    except BadInput:
        raise
    except ValueError as error:  # of mmap, which maps no empty file
        raise _bad("it is empty") from error


def _read(content: mmap) -> Form:
    texts: list[tuple[str, str]] = []
    files: dict[str, FormFile] = {}
    with ExitStack() as opened:
        for part in _parts(content):
            match = _NAME.search(part.head)
            if match is None:
                raise _bad("a part has no name")
            name = match[1].decode("utf-8", "replace")
            if named := _FILE_NAME.search(part.head):
                file_name = unquote(named[1].decode("utf-8", "replace"))  # browsers write a quote as %22
                files[name] = FormFile(file_name, opened.enter_context(_copy(content, part)))
            elif b"filename=" not in part.head:  # else no file was chosen
                texts.append((name, _text(content, part)))
            if len(texts) + len(files) > MAX_FIELDS:
                raise _bad(f"it has at most {MAX_FIELDS} fields, this one more")
        values = unique(texts)
        opened.pop_all()  # its reader closes the files
    return Form(values, files)


def _text(content: mmap, part: _Part) -> str:
    if part.stop - part.start > MAX_TEXT_BYTES:
        raise _bad(f"a text has at most {MAX_TEXT_BYTES:,} bytes, one has {part.stop - part.start:,}")
    return content[part.start : part.stop].decode("utf-8", "replace").replace("\r\n", "\n")


def _parts(content: mmap) -> Iterator[_Part]:
    boundary = content[: max(0, content.find(b"\r\n", 0, MAX_BOUNDARY_BYTES))]
    if not boundary.startswith(b"--"):
        raise _bad("its first line is no boundary")
    position = len(boundary)
    while content[position : position + 2] == b"\r\n":
        start = content.find(_END, position, position + MAX_HEAD_BYTES)
        stop = content.find(b"\r\n" + boundary, start)
        if start < 0 or stop < 0:
            raise _bad("a part has no end")
        yield _Part(content[position:start], start + len(_END), max(stop, start + len(_END)))
        position = stop + 2 + len(boundary)
    if content[position : position + 2] != b"--":
        raise _bad("it has no end")


def _copy(content: mmap, part: _Part) -> BinaryIO:
    file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 (its reader closes it)
    for start in range(part.start, part.stop, COPY_BYTES):
        file.write(content[start : min(start + COPY_BYTES, part.stop)])
    return file


def _bad(what: str) -> BadInput:
    return BadInput(f"a form with files must be sent as a browser sends it, as multipart/form-data; {what}")
