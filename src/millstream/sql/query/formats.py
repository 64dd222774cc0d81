"""Time formats in queries. The parser replaces Spark's letters by the store's directives. This module handles what it
leaves unchanged, fractions of a second and quoted text, and rejects the rest.
"""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.errors import Unsupported

_PARTS = re.compile(r"(%-?[A-Za-z](?:strict)?)|'((?:[^']|'')*)'|([A-Za-z]+)|(.)", re.DOTALL)
_LETTERS = dict(zip("YyBbmdHIMSfpjaAZz", "yyMMMdHhmsSaDEEzZ", strict=True))
"""Directives of the store, and Spark's letters for them."""
_ONE = {f"%-{d}": _LETTERS[d] for d in "mdHIMSj"} | {"%p": "a", "%z": "Z", "%Z": "z"}
"""Directives that stand for one letter, so that quoted text can be restored."""
_FRACTIONS = {"SSS": "%g"}


def check(node: exp.Expr) -> None:
    """Complete the format of a call in place."""
    pattern = node.args.get("format")
    if pattern is None:
        return
    if not isinstance(pattern, exp.Literal):
        raise Unsupported("a time format that is not a literal is not supported in a query", hint=_HINT)
    formats = isinstance(node, exp.TimeToStr | exp.UnixToStr)
    node.set("format", exp.Literal.string(_completed(pattern.name, formats=formats)))


_HINT = "yyyy, MM, dd, HH, mm, ss, SSS, SSSSSS, a, EEE and MMM can be used; other text in single quotes"


def _completed(pattern: str, *, formats: bool) -> str:
    result, before = "", ""
    for directive, quoted, letters, other in _PARTS.findall(pattern):
        if directive:
            letter = _LETTERS.get(directive.removesuffix("strict")[-1], "")
            if not letter or letter == before or (formats and letter in "zZ"):
                raise _left(letter or directive)
            result, before = result + directive, letter
        elif letters:
            if letters not in _FRACTIONS or before == "S":
                raise _left(letters)
            result, before = result + _FRACTIONS[letters], "S"
        else:
            result, before = result + (_read_back(quoted) if not other else other.replace("%", "%%")), ""
    return result


def _read_back(quoted: str) -> str:
    for directive, letter in _ONE.items():
        quoted = quoted.replace(directive, letter)
    if "%" in quoted:
        raise _left(quoted)
    return quoted.replace("''", "'") or "'"


def _left(letters: str) -> Unsupported:
    return Unsupported(f"`{letters}` is not supported in a time format in a query", hint=_HINT)
