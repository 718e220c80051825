"""Programs that differ from a right one by one small mistake."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_SWAPPED: dict[type, type] = {
    **{ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot},
}


def mutants(program: str) -> Iterator[str]:
    """One for each place: another operator, another number, another text, and at last a function that returns
    nothing."""
    tree = ast.parse(program)
    for number in range(sum(1 for _ in ast.walk(tree))):
        changed = copy.deepcopy(tree)
        if _change(next(one for place, one in enumerate(ast.walk(changed)) if place == number)):
            yield ast.unparse(ast.fix_missing_locations(changed))
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            node.value = ast.Constant(None)
    yield ast.unparse(tree)


def _change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in _SWAPPED:
            node.ops[0] = _SWAPPED[type(op)]()
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in _SWAPPED:
            node.op = _SWAPPED[type(op)]()
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.Return(value=ast.expr() as value):
            node.value = ast.List([value], ast.Load())
        case _:
            return False
    return True
