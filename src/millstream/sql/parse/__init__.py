"""From text to statements: tokens, grammar, the allow-list, and errors of syntax in plain words."""
