"""The identity of user code: a text that changes when the code, or a value that it holds, changes. Used in
fingerprints.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any


def code_identity(function: Callable[..., Any] | object, _seen: frozenset[int] = frozenset()) -> str:
    """A name for a piece of user code that changes when the code does, or the plain values it holds: closure, defaults,
    fields.
    """
    if id(function) in _seen:
        return "itself"
    seen = _seen | {id(function)}
    if isinstance(function, functools.partial):
        return f"partial({code_identity(function.func, seen)}{_held((function.args, function.keywords), seen)})"
    code = getattr(function, "__code__", None)
    if code is None:
        names = ("create", "add", "merge", "result", "retract", "__call__")
        methods = [getattr(type(function), m, None) for m in names]
        parts = [code_identity(m, seen) for m in methods if getattr(m, "__code__", None) is not None]
        return f"{type(function).__qualname__}({','.join(parts)}){_held(getattr(function, '__dict__', {}), seen)}"
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or () if c != types.CellType()]
    held = [getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None), cells]
    content = (_code(code), [_held(h, seen) for h in held])
    return f"{getattr(function, '__qualname__', 'function')}:{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}"


def _code(code: types.CodeType) -> object:
    constants = [_code(c) if isinstance(c, types.CodeType) else _held(c, frozenset()) for c in code.co_consts]
    return (code.co_code, constants, code.co_names)


def _held(value: Any, seen: frozenset[int]) -> str:
    """A value that code holds, as text that is the same in every process."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(_held(v, seen) for v in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(_held(v, seen) for v in value))}}}"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_held(k, seen)}:{_held(v, seen)}' for k, v in value.items())}}}"
    return code_identity(value, seen) if callable(value) and not isinstance(value, type) else type(value).__qualname__
