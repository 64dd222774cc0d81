"""Functions of other streaming SQL that Spark has under another name, brought into Spark's."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

Form = Callable[[list[exp.Expr]], exp.Expr]


def _split_index(values: list[exp.Expr]) -> exp.Expr:
    """SPLIT_INDEX(text, separator, n): part n from 0 on; NULL where there is none."""
    text, separator, number = values
    literally = exp.func("concat", exp.Literal.string("\\Q"), separator, exp.Literal.string("\\E"))
    return exp.Anonymous(this="get", expressions=[exp.Anonymous(this="split", expressions=[text, literally]), number])


FORMS: dict[str, tuple[int, Form]] = {"split_index": (3, _split_index)}
"""Name -> how many values it takes, and what it is in Spark."""


def in_spark(tree: exp.Expr) -> exp.Expr:
    """A tree with such functions replaced; each stays where it stood."""
    for call in list(tree.find_all(exp.Anonymous)):
        number, form = FORMS.get(str(call.this).lower(), (0, None))
        if form is not None and len(call.expressions) == number:
            made = form([v.copy() for v in call.expressions])
            if call is tree:
                return made
            call.replace(made)
    for node in list(tree.find_all(exp.ToChar)):
        made = exp.Anonymous(this="to_char", expressions=[node.this.copy(), node.args["format"].copy()])
        if node is tree:
            return made
        node.replace(made)
    return tree
