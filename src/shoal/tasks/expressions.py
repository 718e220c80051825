"""What stands in for `eval` and sympy's `parse_expr` while answers are scored: interpreters of a small language.

reasoning-gym 0.1.25 calls `eval(answer)` in binary_matrix, spiral_matrix, string_insertion and n_queens, and sympy's
`parse_expr(answer)`, which evaluates too, in five more. Here an answer is parsed, and then walked: literals, lists and
arithmetic, within bounds. No name is looked up, nothing is called, no attribute is read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

MAX_TEXT = 50_000
"""Characters: a 100 x 100 matrix as a list of lists has 30 000."""
MAX_BITS = 1_000_000
"""Of an integer result. Above what bitwise_arithmetic makes of its own questions, below what takes time."""
MAX_EXPONENT = 100
"""sympy would multiply (x + 1)**999 out."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
_SYMBOLIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    kind: _BINARY[kind] for kind in (ast.Add, ast.Sub, ast.Mult, ast.Div)
}
_CONSTANTS = {"pi": sympy.pi, "E": sympy.E, "I": sympy.I}
_FUNCTIONS = {
    name: getattr(sympy, name)
    for name in (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs"),
    )
}


def safe_eval(text: str) -> Any:
    """The value of a literal: numbers with arithmetic, strings, lists, tuples. Raises `ValueError` for all else."""
    return _value(_parse(text))


def safe_parse_expr(text: str, local_dict: Mapping[str, Any] | None = None, **_options: Any) -> Any:
    """The sympy expression that `text` writes: numbers, symbols, + - * / ** and common functions.

    It has the signature of `sympy.parse_expr`, whose other options change nothing here. Raises `ValueError` for all
    else, the notations that sympy adds to Python's (3!, 2x) among it.
    """
    return _symbolic(_parse(text), local_dict or {})


def _parse(text: str) -> ast.expr:
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise ValueError("not a text of reasonable length")
    return ast.parse(text.strip(), mode="eval").body


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | complex() | str() | None as value):
            return value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_apply(op, _number(left), _number(right)))
    raise ValueError(f"{type(node).__name__} is not a literal")


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if not isinstance(value, int | float | complex):
        raise ValueError("arithmetic is for numbers")
    return value


def _apply(op: ast.operator, left: Any, right: Any) -> Any:
    """`left op right`, refused before it is computed where the result would be too large."""
    if isinstance(op, ast.LShift):
        if not isinstance(right, int) or right > MAX_BITS:
            raise ValueError("shift too large")
        return left << right
    if isinstance(op, ast.Pow):
        if isinstance(right, complex) or abs(right) > MAX_EXPONENT:
            raise ValueError("exponent too large")
        if isinstance(left, int) and left.bit_length() * abs(right) > MAX_BITS:
            raise ValueError("power too large")
        return left**right
    if type(op) not in _BINARY:
        raise ValueError(f"no operator {type(op).__name__}")
    return _BINARY[type(op)](left, right)


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("number too large")
    return value


def _symbolic(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("a truth value is not an expression")
        case ast.Constant(value=int() as value):
            return sympy.Integer(value)
        case ast.Constant(value=float() as value):
            return sympy.Float(value)
        case ast.Name(id=name):
            return names.get(name) or _CONSTANTS.get(name) or sympy.Symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_symbolic(operand, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _symbolic(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_symbolic(left, names), _symbolic(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SYMBOLIC:
            return _SYMBOLIC[type(op)](_symbolic(left, names), _symbolic(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_symbolic(argument, names) for argument in arguments))
    raise ValueError(f"{type(node).__name__} is not arithmetic")


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_number:
        size = abs(float(exponent)) if exponent.is_extended_real else MAX_EXPONENT + 1
        if not size <= MAX_EXPONENT:
            raise ValueError("exponent too large")
        if base.is_Rational and max(abs(base.p), base.q).bit_length() * size > MAX_BITS:
            raise ValueError("power too large")
    return base**exponent
