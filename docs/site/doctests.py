"""An extension of griffe, which reads docstrings for the site: doctests in them become blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*\n?(?:(?! *$).+\n?)*", re.MULTILINE)


class Doctests(Extension):
    """Sees every object that has a docstring."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Mark its doctests as code."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose doctests, each up to an empty line, stand between fences.

    >>> fenced("Twice.")
    'Twice.'
    """
    return _DOCTEST.sub(lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n", text)
