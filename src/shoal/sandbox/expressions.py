"""Interpreters of a small language, in place of `eval` and sympy's `parse_expr` while answers are scored.

reasoning-gym 0.1.25 calls `eval(answer)` in binary_matrix, spiral_matrix, string_insertion and n_queens, and sympy's
`parse_expr(answer)`, which evaluates too, in five more tasks. Here an answer is parsed and then walked: literals, lists
and arithmetic, with limits on each number and on the work of all of it. No name is looked up, nothing is called, no
attribute is read.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

MAX_TEXT = 50_000  # characters: a 100 x 100 matrix as a list of lists has 30 000
MAX_BITS = 4096
"""Of an integer or a fraction, before and after each operation. bitwise_arithmetic needs 800 for its own questions."""
MAX_WORK = 100_000  # bits of all operands and results of an expression together: many cheap steps are not cheap
MAX_EXPONENT = 100  # sympy would expand (x + 1)**999
MAX_NODES = 150  # numbers, names, operations and calls of a symbolic expression. Right answers have 60 at most.
MAX_CALLS = 12  # functions among them. Right answers have 4 at most.
MAX_ROOT_BITS = 64  # of a number within a root or a function: sympy looks for its factors

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
_POINTS = sympy.Float("0.7390851332"), sympy.Float("1.6180339887")  # where no identity holds by chance
_CONSTANTS = {"pi": sympy.pi, "E": sympy.E, "I": sympy.I}
_FUNCTIONS = {
    name: getattr(sympy, name)
    for name in (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs"),
    )
}


class _Work:
    """What the arithmetic of one expression may still cost."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, *values: Any) -> None:
        """Pay for the operands or results of an operation. Raises `ValueError` if that is too much."""
        for value in values:
            size = bits(value)
            self.left -= size
            if size > MAX_BITS or self.left < 0:
                raise ValueError("numbers too large")


def bits(value: Any) -> int:
    """The bits of an exact number of Python or sympy; 0 for everything else, whose size is fixed."""
    if isinstance(value, int):
        return value.bit_length()
    if isinstance(value, sympy.Rational):
        return int(value.p).bit_length() + int(value.q).bit_length()
    return 0


def safe_eval(text: str) -> Any:
    """The value of a literal: numbers with arithmetic, strings, lists, tuples. Raises `ValueError` otherwise."""
    return _value(_parse(text), _Work())


def safe_parse_expr(text: str, local_dict: Mapping[str, Any] | None = None, **_options: Any) -> Any:
    """The sympy expression that `text` writes: numbers, symbols, + - * / ** and common functions.

    It has the signature of `sympy.parse_expr`, whose other options have no effect here. Raises `ValueError` for
    anything else, including sympy's additions to Python's notation (3!, 2x), and for what is too large.
    """
    return _symbolic(_small(_parse(text)), local_dict or {}, _Work())


def safe_parse_number(text: str, **_options: Any) -> Any:
    """The same without symbols, for scorers that expect a number."""
    tree = _small(_parse(text))
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in called and node.id not in _CONSTANTS:
            raise ValueError("a symbol is not a number")
    return _symbolic(tree, {}, _Work())


def is_surely_not_zero(expression: Any) -> bool:
    """Whether a sympy expression is far from zero at two points: a thousandth of `simplify`'s work."""
    symbols = sorted(expression.free_symbols, key=str)
    for point in _POINTS:
        values = {symbol: point + number for number, symbol in enumerate(symbols)}
        try:
            value = complex(expression.evalf(15, subs=values, maxn=60))
        except Exception:  # sympy may raise anything, and then it is not sure
            return False
        if not (math.isfinite(abs(value)) and abs(value) > 1e-3):
            return False
    return True


def _parse(text: str) -> ast.expr:
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise ValueError("not a text of reasonable length")
    return ast.parse(text.strip(), mode="eval").body


def _small(tree: ast.expr) -> ast.expr:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    if len(nodes) > MAX_NODES or sum(isinstance(node, ast.Call) for node in nodes) > MAX_CALLS:
        raise ValueError("expression too large")
    return tree


def _value(node: ast.expr, work: _Work) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | complex() | str() | None as value):
            return value
        case ast.List(elts=items):
            return [_value(item, work) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item, work) for item in items)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(operand, work))
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(op, _number(left, work), _number(right, work), work)
    raise ValueError(f"{type(node).__name__} is not a literal")


def _number(node: ast.expr, work: _Work) -> Any:
    value = _value(node, work)
    if not isinstance(value, int | float | complex):
        raise ValueError("arithmetic is for numbers")
    return value


def _apply(op: ast.operator, left: Any, right: Any, work: _Work) -> Any:
    """`left op right`. Raises `ValueError` before computing what would cost too much."""
    work.spend(left, right)
    if isinstance(op, ast.LShift):
        if not isinstance(right, int) or right > MAX_BITS:
            raise ValueError("shift too large")
        result = left << right
    elif isinstance(op, ast.Pow):
        if isinstance(right, complex) or abs(right) > MAX_EXPONENT:
            raise ValueError("exponent too large")
        if bits(left) * abs(right) > MAX_BITS:
            raise ValueError("power too large")
        result = left**right
    elif type(op) in _BINARY:
        result = _BINARY[type(op)](left, right)
    else:
        raise ValueError(f"no operator {type(op).__name__}")
    work.spend(result)
    return result


def _symbolic(node: ast.expr, names: Mapping[str, Any], work: _Work) -> Any:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("a truth value is not an expression")
        case ast.Constant(value=int() as value):
            work.spend(value)
            return sympy.Integer(value)
        case ast.Constant(value=float() as value):
            return sympy.Float(value)
        case ast.Name(id=name):
            return names.get(name) or _CONSTANTS.get(name) or sympy.Symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_symbolic(operand, names, work)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _symbolic(operand, names, work)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ast.Pow) or type(op) in _SYMBOLIC:
            operands = _symbolic(left, names, work), _symbolic(right, names, work)
            work.spend(*operands)
            result = _power(*operands) if isinstance(op, ast.Pow) else _SYMBOLIC[type(op)](*operands)
            work.spend(result)
            return result
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_symbolic(argument, names, work) for argument in arguments]
            if any(bits(value) > MAX_ROOT_BITS for value in values):
                raise ValueError("number too large for a function")
            return _FUNCTIONS[name](*values)
    raise ValueError(f"{type(node).__name__} is not arithmetic")


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_number:
        size = abs(float(exponent)) if exponent.is_extended_real else MAX_EXPONENT + 1
        if not size <= MAX_EXPONENT:
            raise ValueError("exponent too large")
        if bits(base) * size > MAX_BITS or (bits(base) > MAX_ROOT_BITS and not exponent.is_Integer):
            raise ValueError("power too large")
    return base**exponent
