"""HTML and SVG as text: `tag` for an element and `words` for text in it."""

from __future__ import annotations

import re
from html import escape

_UNIT = re.compile(r"(\d) (%|[KMG]iB|B\b|ms|µs|samples/s)")


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element around `content`, which is markup; attributes that are None are left out.

    Names end with an underscore where Python reserves them, and hyphens are written as underscores.

    >>> tag("text", "F0", x=1.25, class_="muted", text_anchor=None)
    '<text x="1.2" class="muted">F0</text>'
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = "".join(f' {key}="{_attribute(value)}"' for key, value in pairs)
    return f"<{name}{head}>{''.join(content)}</{name}>"


def _attribute(value: object) -> str:
    """A number has one decimal, a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def words(text: object) -> str:
    """Text as markup; no line break separates a number from its unit.

    >>> words("a < b"), words("22 % of it")
    ('a &lt; b', '22\xa0% of it')
    """
    return _UNIT.sub("\\1\xa0\\2", escape(str(text)))
