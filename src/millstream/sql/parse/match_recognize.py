"""MATCH_RECOGNIZE before parsing: the clause is cut out, and replaced by a LATERAL VIEW that records its position."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.sql.parse.text import closing, token_at, word

NAME = "MATCH_RECOGNIZE"


def cut(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """The tokens that replace the clause starting at a position, and the position of its end."""
    first, last = tokens[at], closing(tokens, at + 1)
    end = tokens[min(last, len(tokens) - 1)]
    after = last + 1
    named = after < len(tokens) and word(tokens[after]) == "AS"
    stands = [
        token_at(TokenType.LATERAL, "LATERAL", first),
        token_at(TokenType.VIEW, "VIEW", first),
        token_at(TokenType.VAR, NAME, first),
        token_at(TokenType.L_PAREN, "(", first),
        token_at(TokenType.NUMBER, str(first.start), first),
        token_at(TokenType.COMMA, ",", first),
        token_at(TokenType.NUMBER, str(end.end), first),
        token_at(TokenType.R_PAREN, ")", first),
    ]
    after += named
    if named or (after < len(tokens) and tokens[after].token_type in (TokenType.VAR, TokenType.IDENTIFIER)):
        return [*stands, *tokens[after : after + 1]], after + 1
    return [*stands, token_at(TokenType.VAR, "matches", first)], after


def stands_for(node: exp.Expr) -> bool:
    """Whether a LATERAL VIEW represents a MATCH_RECOGNIZE."""
    return isinstance(node, exp.Lateral) and isinstance(node.this, exp.Anonymous) and node.this.name == NAME
