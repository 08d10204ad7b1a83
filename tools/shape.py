"""Print the shape of the code: statements, comments, the length of functions and files. A mirror, not a gate."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median, quantiles

LONG_FUNCTION = 60
LONG_FILE = 800


def functions(tree: ast.AST) -> list[tuple[str, int]]:
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def statements(tree: ast.AST) -> int:
    """Count the statements of a file without docstrings and imports."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sum(
        not isinstance(node, (ast.Import, ast.ImportFrom))
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in found
    )


def comment_lines(text: str) -> int:
    """Count the lines that are a comment and nothing else."""
    return sum(line.lstrip().startswith("#") for line in text.splitlines())


def main() -> None:
    files = sorted(Path("src").rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    lengths = {(path, name): n for path, text in texts.items() for name, n in functions(ast.parse(text))}
    sizes = sorted(lengths.values())
    lines = sum(text.count("\n") for text in texts.values())
    count = sum(statements(ast.parse(text)) for text in texts.values())
    comments = sum(map(comment_lines, texts.values())) / lines
    print(
        f"{len(files)} files, {lines} lines, {count} statements, {len(sizes)} functions, {comments:.1%} comments"
    )
    print(f"function length: median {median(sizes):g}, 90th percentile {quantiles(sizes, n=10)[-1]:g}")
    for (path, name), length in sorted(lengths.items(), key=lambda item: -item[1]):
        if length > LONG_FUNCTION:
            print(f"  long function: {path}:{name} ({length})")
    for path, text in texts.items():
        if text.count("\n") > LONG_FILE:
            print(f"  long file: {path} ({text.count(chr(10))})")


if __name__ == "__main__":
    main()
