"""Parsing: from text to statements, with tokens, grammar, the allow-list, and readable syntax errors."""
