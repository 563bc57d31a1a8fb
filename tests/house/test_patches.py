"""Nothing of a library is replaced in a user's process."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.trees import nodes

HOOKS = {"sys.unraisablehook", "sys.stderr"}
"""What Python's documentation lets a program set."""


def imported(tree: ast.Module) -> set[str]:
    """The names of all that a file imports from elsewhere."""
    names: set[str] = set()
    for node in nodes(tree):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases) if not module.startswith("autoauto"):
                names.update(alias.asname or alias.name for alias in aliases)
    return names


def targets(node: ast.AST) -> list[ast.expr]:
    """What a statement sets, one by one."""
    match node:
        case ast.Assign(targets=several):
            every = several
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            every = [target]
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, *_]):
            every = [ast.Attribute(owner, "*")]
        case _:
            return []
    flat: list[ast.expr] = []
    for each in every:
        flat += each.elts if isinstance(each, ast.Tuple | ast.List) else [each]
    return flat


def replaced(tree: ast.Module) -> Iterator[str]:
    """The attributes of imported names that a file sets."""
    names = imported(tree)
    for node in nodes(tree):
        for target in targets(node):
            owner = target
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(target, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in names:
                yield ast.unparse(target)


def test_no_attribute_of_a_library_is_set(package: Mapping[Path, ast.Module]) -> None:
    patches = {(str(path), name) for path, tree in package.items() for name in replaced(tree) if name not in HOOKS}
    assert patches == {("__main__.py", "sys.*")}, "its streams that are closed when Python starts"


def test_a_patch_is_seen() -> None:
    patches = "import yaml\nfrom a import b\nyaml.SafeLoader = 1\nb.c.d, e = 1, 2\nsetattr(b, 'f', 3)\nb.items[0] = 4"
    assert list(replaced(ast.parse(patches))) == ["yaml.SafeLoader", "b.c.d", "b.*"]
