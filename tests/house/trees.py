"""Python files as trees, read once for all house tests: `parsed`, `nodes`."""

import ast
from functools import cache


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a program."""
    return ast.parse(text)


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree; `ast.walk` takes a second for the whole package."""
    return tuple(ast.walk(tree))
