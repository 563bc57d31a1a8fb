"""A person at the pages of a server: requests of a browser, one at a time, without following redirections."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import unescape
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlencode

from tests.running import PATIENCE_S

FormValue = str | tuple[str, bytes]
"""A text, or the name and the content of a file."""


class Shown(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    html: str

    @property
    def text(self) -> str:
        """The words of the page."""
        return unescape(re.sub(r"<[^>]*>", " ", self.html)).replace("\xa0", " ")

    def error_of(self, field: str) -> str:
        """What stands beside a field."""
        match = re.search(rf'id="{field}-error" class="error">(.*?)</p>', self.html)
        return unescape(match[1]) if match else ""


class Person(NamedTuple):
    """Sends what a browser sends, with a token in its cookie where there is one."""

    url: str
    token: str | None = None

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Shown:
        host = self.url.removeprefix("http://")
        connection = HTTPConnection(host, timeout=PATIENCE_S)
        sent = {"Accept": "text/html,application/xhtml+xml"} | ({"Origin": self.url} if method == "POST" else {})
        sent |= {"Cookie": f"other=1; autoauto_token={self.token}"} if self.token else {}
        try:
            connection.request(
                method, path, body, sent | {key.replace("_", "-"): each for key, each in headers.items()}
            )
            answer = connection.getresponse()
            return Shown(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def send(self, path: str, values: Mapping[str, str], **headers: str) -> Shown:
        """Send a form."""
        return self("POST", path, urlencode(values).encode(), **headers)

    def start(self, values: Mapping[str, FormValue]) -> Shown:
        """Send the form that starts a search."""
        return self("POST", "/new", multipart(values), Content_Type="multipart/form-data; boundary=x-y")


def multipart(values: Mapping[str, FormValue]) -> bytes:
    """A form with files."""
    body = io.BytesIO()
    for name, value in values.items():
        head = f'--x-y\r\nContent-Disposition: form-data; name="{name}"'
        content = value if isinstance(value, str) else value[1]
        if isinstance(value, tuple):
            file_name = value[0].replace('"', "%22")  # as browsers do
            head += f'; filename="{file_name}"\r\nContent-Type: application/octet-stream'
        body.write(f"{head}\r\n\r\n".encode() + (content.encode() if isinstance(content, str) else content) + b"\r\n")
    return body.getvalue() + b"--x-y--\r\n"
