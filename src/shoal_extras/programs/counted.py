"""Makes a program count its own steps, so that an endless loop ends at the same place on every node.

    counted("while True: pass", "tick")         # "while True:\\n    tick()\\n    pass"

A step is one turn of a loop or of a comprehension, or one call of a function that the program defines. What a builtin
does in one call (`sum(range(10**12))`) is no step: memory or, at last, the clock ends that.
"""

from __future__ import annotations

import ast
from typing import Final

_BLOCKS: Final = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)


def counted(program: str, tick: str) -> str:
    """`program` with a call of `tick`, which returns true, at each step. Raises `ValueError` for one that cannot be
    read or written here."""
    try:
        tree = ast.parse(program)
        for node in list(ast.walk(tree)):
            _count(node, tick)
        return ast.unparse(ast.fix_missing_locations(tree))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _count(node: ast.AST, tick: str) -> None:
    call = ast.Call(ast.Name(tick, ast.Load()), [], [])
    if isinstance(node, _BLOCKS):
        documented = not isinstance(node, ast.For | ast.AsyncFor | ast.While) and ast.get_docstring(node) is not None
        node.body.insert(int(documented), ast.Expr(call))
    elif isinstance(node, ast.comprehension):
        node.ifs.insert(0, call)
    elif isinstance(node, ast.Lambda):
        node.body = ast.BoolOp(ast.And(), [call, node.body])
