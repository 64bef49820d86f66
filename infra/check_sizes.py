"""Prints files and functions that have outgrown their size; exit status 1 when one is at double its limit.

In: the Python files of the packages and tests. A file aims at 200 lines and stays under 300, a
function at 25 and 60; judgement decides in between, only double the limit fails.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("schemas", "topics", "streams", "engine", "edge", "infra", "tests")


@dataclass(frozen=True)
class Limits:
    what: str
    aim: int
    limit: int


FILE = Limits("file", 200, 300)
FUNCTION = Limits("function", 25, 60)


@dataclass(frozen=True)
class Size:
    where: str
    limits: Limits
    lines: int

    @property
    def fails(self) -> bool:
        return self.lines > 2 * self.limits.limit

    def __str__(self) -> str:
        word = "DOUBLE" if self.fails else "over" if self.lines > self.limits.limit else "long"
        return (
            f"{word:<6} {self.lines:>4} lines ({self.limits.aim}/{self.limits.limit})  {self.limits.what} {self.where}"
        )


def sizes(name: str, source: str) -> Iterator[Size]:
    """Everything in one file that is above its aim."""
    found = [Size(name, FILE, len(source.splitlines()))]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found.append(Size(f"{name}:{node.lineno} {node.name}", FUNCTION, lines))
    yield from (size for size in found if size.lines > size.limits.aim)


def main() -> int:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    large = [size for path in paths for size in sizes(str(path.relative_to(ROOT)), path.read_text())]
    for size in sorted(large, key=lambda size: (size.limits.what, -size.lines)):
        print(size)
    return 1 if any(size.fails for size in large) else 0


if __name__ == "__main__":
    sys.exit(main())
