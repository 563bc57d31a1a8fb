"""Types of arrays are defined once."""

import re
from pathlib import Path

import autoauto

ALIAS = re.compile(r"^\w+ = (?:npt\.|np\.typing\.)?NDArray\[", re.MULTILINE)


def test_only_one_module_defines_types_of_arrays() -> None:
    package = Path(autoauto.__file__).parent
    defining = [path for path in package.rglob("*.py") if ALIAS.search(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(package)) for path in defining] == ["records/units.py"]
