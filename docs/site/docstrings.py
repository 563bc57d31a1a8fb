"""An extension of griffe, which reads docstrings for the site, for two habits of ours.

Doctests become blocks of code, and an entry of several names becomes one for each, so that each has its type.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*\n?(?:(?! *$).+\n?)*", re.MULTILINE)
_NAMES = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+):(?P<text> .*(?:\n(?P=indent) +\S.*)*)", re.MULTILINE)


class Docstrings(Extension):
    """Sees every object that has a docstring."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = separate(fenced(obj.docstring.value))


def fenced(text: str) -> str:
    """A docstring whose doctests, each up to an empty line, stand between fences."""
    return _DOCTEST.sub(lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n", text)


def separate(text: str) -> str:
    """A docstring in which every argument and attribute has an entry of its own.

    >>> separate("Args:\\n    a, b: of a box.")
    'Args:\\n    a: of a box.\\n    b: of a box.'
    """
    return _NAMES.sub(
        lambda match: "\n".join(f"{match['indent']}{name}:{match['text']}" for name in match["names"].split(", ")), text
    )
