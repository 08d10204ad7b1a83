"""Prints the shape of the code: how long functions and files are. A mirror, not a gate."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median, quantiles

LONG_FUNCTION = 60
LONG_FILE = 400


def functions(tree: ast.AST) -> list[tuple[str, int]]:
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def main() -> None:
    files = sorted(Path("src").rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    lengths = {(path, name): n for path, text in texts.items() for name, n in functions(ast.parse(text))}
    sizes = sorted(lengths.values())
    lines = sum(text.count("\n") for text in texts.values())
    print(f"{len(files)} files, {lines} lines, {len(sizes)} functions")
    print(f"function length: median {median(sizes):g}, 90th percentile {quantiles(sizes, n=10)[-1]:g}")
    for (path, name), length in sorted(lengths.items(), key=lambda item: -item[1]):
        if length > LONG_FUNCTION:
            print(f"  long function: {path}:{name} ({length})")
    for path, text in texts.items():
        if text.count("\n") > LONG_FILE:
            print(f"  long file: {path} ({text.count(chr(10))})")


if __name__ == "__main__":
    main()
