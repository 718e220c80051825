"""Makes a program count its own steps, so that an endless loop ends at the same place on every node.

    counted("while True: pass", "tick")         # "while True:\\n    tick()\\n    pass"

A step is one turn of a loop or of a comprehension, or one call of a function that the program defines. What a builtin
does in one call (`sum(range(10**12))`) is no step: memory or, at last, the clock ends that.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
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


def checked(tests: str, plain: str, saved: Collection[str], prefix: str) -> str:
    """`tests` as no answer can change them: what they compare or calculate with is passed through `plain`, and builtins
    in `saved` are called by their names with `prefix`, as they were before the answer ran. Raises `ValueError` for what
    is no test."""
    try:
        tree = ast.parse(tests)
        own = set(map(_bound, ast.walk(tree)))
        tree = _Checked(plain, set(saved) - own, prefix).visit(tree)
        return ast.unparse(ast.fix_missing_locations(tree))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


class _Checked(ast.NodeTransformer):
    """See `checked`."""

    def __init__(self, plain: str, saved: Collection[str], prefix: str) -> None:
        self._plain, self._saved, self._prefix = plain, saved, prefix

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = self._passed(node.left)
        node.comparators = [self._passed(one) for one in node.comparators]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.left, node.right = self._passed(node.left), self._passed(node.right)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        node.value = self._passed(node.value)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            node.operand = self._passed(node.operand)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self._saved:
            return ast.Name(self._prefix + node.id, ast.Load())
        return node

    def _passed(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant):
            return value
        return ast.Call(ast.Name(self._plain, ast.Load()), [value], [])


def _bound(node: ast.AST) -> str:
    """The name that `node` gives to something; empty if it does not."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return str(name)
    return ""


def _count(node: ast.AST, tick: str) -> None:
    call = ast.Call(ast.Name(tick, ast.Load()), [], [])
    if isinstance(node, _BLOCKS):
        documented = not isinstance(node, ast.For | ast.AsyncFor | ast.While) and ast.get_docstring(node) is not None
        node.body.insert(int(documented), ast.Expr(call))
    elif isinstance(node, ast.comprehension):
        node.ifs.insert(0, call)
    elif isinstance(node, ast.Lambda):
        node.body = ast.BoolOp(ast.And(), [call, node.body])
