"""MATCH_RECOGNIZE before parsing: the clause is cut out, and replaced by a LATERAL VIEW that records its position."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.sql.parse.text import closing, made, word

NAME = "MATCH_RECOGNIZE"


def cut(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """The tokens that replace the clause starting at a position, and the position of its end."""
    first, last = tokens[at], closing(tokens, at + 1)
    end = tokens[min(last, len(tokens) - 1)]
    after = last + 1
    named = after < len(tokens) and word(tokens[after]) == "AS"
    stands = [
        made(TokenType.LATERAL, "LATERAL", first),
        made(TokenType.VIEW, "VIEW", first),
        made(TokenType.VAR, NAME, first),
        made(TokenType.L_PAREN, "(", first),
        made(TokenType.NUMBER, str(first.start), first),
        made(TokenType.COMMA, ",", first),
        made(TokenType.NUMBER, str(end.end), first),
        made(TokenType.R_PAREN, ")", first),
    ]
    after += named
    if named or (after < len(tokens) and tokens[after].token_type in (TokenType.VAR, TokenType.IDENTIFIER)):
        return [*stands, *tokens[after : after + 1]], after + 1
    return [*stands, made(TokenType.VAR, "matches", first)], after


def stands_for(node: exp.Expr) -> bool:
    """Whether a LATERAL VIEW represents a MATCH_RECOGNIZE."""
    return isinstance(node, exp.Lateral) and isinstance(node.this, exp.Anonymous) and node.this.name == NAME
