"""Functions and operators of Postgres, Flink and DuckDB as Spark SQL expressions: JSON operators, formats, patterns.

Each behaves as its own documentation specifies, in views and in queries. What Spark cannot express is rejected with a
hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Unsupported
from millstream.model.types.duration import Duration

BINNED = "date_binned"
"""The name of date_bin during parsing."""
_ARROWS = (TokenType.ARROW, TokenType.DARROW)
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
Form = Callable[[list[exp.Expr]], exp.Expr]

POSTGRES = re.compile(
    r"Y|(?i:HH24|HH12|MI)|(?i:mon|day)(?![a-zA-Z])|Month|MONTH|Dy|(?<![a-zA-Z])AM|PM|IYYY|FM"
    r"|MM\W?DD|DD\W?MM|(?<!M)MS|US"
)
"""Elements that Spark's formats lack or define differently, which indicate a Postgres format."""
_SECONDS = re.compile(r"(?<!S)SS(?!S)")
"""Seconds in Postgres, unless the format also has Spark's seconds; then they are fractions of a second."""
_MINUTES_OF_A_DATE = re.compile(r"y\W?mm\W?d|d\W?mm\W?y")
_PARTS = (
    ("YYYY", "yyyy", "y"), ("YYY", "yyy", ""), ("YY", "yy", ""), ("HH24", "HH", "H"), ("HH12", "hh", "h"),
    ("HH", "hh", "h"), ("MI", "mm", "m"), ("MM", "MM", "M"), ("SS", "ss", "s"), ("MS", "SSS", ""), ("US", "SSSSSS", ""),
    ("DDD", "DDD", "D"), ("DD", "dd", "d"), ("Month", "MMMM", "MMMM"), ("Mon", "MMM", "MMM"), ("Day", "EEEE", "EEEE"),
    ("Dy", "EEE", "EEE"), ("AM", "a", "a"), ("PM", "a", "a"), ("Q", "q", "q"), ("WW", "", ""), ("IW", "", ""),
    ("TZ", "", ""),
)  # fmt: skip
"""Elements of Postgres formats and Spark's equivalents, plain and after FM; empty if there is none."""
_NAMES = ("Month", "Mon", "Day", "Dy")
"""Elements whose case determines the case of the name; Spark has only this form."""


def call(name: str, *values: exp.Expr) -> exp.Expr:
    """A call of a Spark function by name."""
    return exp.Anonymous(this=name, expressions=[v.copy() for v in values])


def spark_format(pattern: str) -> str:
    """Converts a Postgres time format to Spark's letters: ``YYYY-MM-DD HH24:MI`` is ``yyyy-MM-dd HH:mm``."""
    numbers = any(c.isdigit() for c in re.sub("(?i)HH24|HH12", "", pattern))  # to_char(n, '999MI')
    seconds = "ss" not in pattern and _SECONDS.search(pattern) is not None
    if numbers or "'" in pattern:
        return pattern
    if POSTGRES.search(pattern) is None and not seconds:
        if _MINUTES_OF_A_DATE.search(pattern):
            raise DefinitionError(
                f"`mm` in the format '{pattern[:60]}' would be minutes", hint="`MM` is the month, e.g. 'yyyy-MM-dd'"
            )
        return pattern
    result, rest = "", pattern
    while rest:
        filled = not rest.startswith("FM")  # FM: without leading zeros
        rest = rest if filled else rest[2:]
        part = next((p for p in _PARTS if rest.upper().startswith(p[0].upper())), None)
        if part is not None and part[0] in _NAMES and not rest.startswith(part[0]):
            part = (rest[: len(part[0])], "", "")
        letters = "" if part is None else part[1 if filled else 2]
        if part is not None and letters:
            result, rest = result + letters, rest[len(part[0]) :]
        elif rest[:1] == '"':
            end = rest.find('"', 1)
            result, rest = result + "'" + rest[1 : end if end > 0 else None].replace("'", "''") + "'", rest[end + 1 :]
            if end < 0:
                break
        elif rest[:1].isalpha():
            unknown = ("" if filled else "FM") + (part[0] if part is not None else rest[0])
            raise DefinitionError(
                f"`{unknown}` in the format '{pattern[:60]}' is not supported",
                hint="write the format in Spark's letters, e.g. 'yyyy-MM-dd HH:mm:ss'; literals are in single quotes",
            )
        else:
            result, rest = result + rest[:1], rest[1:]
    return result


_FORMATTED = ("TO_CHAR", "TO_DATE", "TO_TIMESTAMP")
"""Functions with a time format, in Spark's letters or in those of Postgres."""
_PLAIN = {"DATE_BIN": BINNED, "JSON_EXTRACT_PATH_TEXT": "jsonb_extract_path_text"}
"""Functions of which the parser would lose an argument, and names that it does not know."""
_USUAL = "yyyy-MM-dd"
"""The date format that the parser omits."""


def known_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Tokens that the parser reads without loss: formats in Spark's letters, and names that it does not know."""
    done = _with_keys(tokens)
    for i in range(len(done) - 1, -1, -1):
        if i + 1 >= len(done) or done[i + 1].token_type is not TokenType.L_PAREN:
            continue
        keyword = done[i].text.upper() if done[i].token_type not in _QUOTED else ""
        if keyword in _PLAIN:
            done[i] = _token(TokenType.VAR, _PLAIN[keyword], done[i])
        elif keyword in _FORMATTED:
            end = _closing(done, i + 1)
            last = done[end - 1] if end < len(done) else done[i]
            if last.token_type is TokenType.STRING and done[end - 2].token_type is TokenType.COMMA:
                pattern = spark_format(last.text)
                done[end - 1] = _token(TokenType.STRING, pattern, last)
                if keyword == "TO_DATE" and pattern == _USUAL:
                    inner = [_token(TokenType.VAR, "to_timestamp", done[i]), *done[i + 1 : end + 1]]
                    outer = [_token(TokenType.VAR, "date", done[i]), done[i + 1]]
                    done[i : end + 1] = [*outer, *inner, _token(TokenType.R_PAREN, ")", done[end])]
    return done


def _with_keys(tokens: Sequence[Token]) -> list[Token]:
    """Tokens in which a string after ``->`` and ``->>`` is a key, which the parser would read as a path."""
    done = list(tokens)
    for i in range(1, len(done)):
        key, arrow = done[i], done[i - 1].token_type
        if key.token_type is not TokenType.STRING or arrow not in _ARROWS:
            continue
        after = next((t.token_type for t in done[i + 1 :] if t.token_type is not TokenType.R_PAREN), None)
        is_key = arrow is TokenType.DARROW or after in _ARROWS  # otherwise it is the body of a lambda
        plain = re.fullmatch(r"(?!\d+$)\w+", key.text) or re.match(r"\$(?:[.\[]|$)", key.text)  # or a DuckDB path
        if is_key and not plain and re.fullmatch(r"[^'?]+", key.text):
            done[i] = _token(TokenType.STRING, f"$['{key.text}']", key)
    return done


def _token(kind: TokenType, text: str, at: Token) -> Token:
    return Token(kind, text, at.line, at.col, at.start, at.end)


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += (tokens[i].token_type is TokenType.L_PAREN) - (tokens[i].token_type is TokenType.R_PAREN)
        if depth == 0:
            return i
    return len(tokens)


def _paths(parts: list[exp.Expr], spelling: str, either: bool) -> list[str]:
    """The JSON paths that some keys and numbers may mean: a string is a key, a number is an array index.

    With `either`, as in ``#>> '{a,0}'``, a string of digits is both.
    """
    paths = ["$"]
    for part in parts:
        literal = part.unnest()
        name = literal.name if isinstance(literal, exp.Literal) else ""
        if isinstance(literal, exp.Literal) and not literal.is_string:
            ways = [f"[{name}]"]
        elif name.isdecimal() and name.isascii():
            ways = [f"[{name}]", f"['{name}']"] if either else [f"['{name}']"]
        elif re.fullmatch(r"\w+", name):
            ways = [f".{name}"]
        elif re.fullmatch(r"[^'?]+", name) and name != "*":
            ways = [f"['{name}']"]
        elif isinstance(literal, exp.Literal):
            raise Unsupported(
                f"the key '{name[:40]}' of {spelling} is not supported",
                hint="from_json(json, 'MAP<STRING, STRING>')['key'] takes any key",
            )
        else:
            raise Unsupported(
                f"a key of {spelling} must be a string literal or a number",
                hint="get_json_object(json, concat('$.', key)) takes a key that is computed",
            )
        paths = [p + w for p in paths for w in ways]
    return paths


def _text_at(json: exp.Expr, parts: list[exp.Expr], spelling: str, *, either: bool = False) -> exp.Expr:
    """The text of JSON at a path."""
    paths = [
        exp.func("get_json_object", json.copy(), exp.Literal.string(p), dialect="spark")
        for p in _paths(parts, spelling, either)
    ]
    return paths[0] if len(paths) == 1 else exp.Coalesce(this=paths[0], expressions=paths[1:])


def _keys(node: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
    """The JSON and the keys of ``json -> 'a' -> 'b'``."""
    if isinstance(node, exp.JSONExtract | exp.JSONExtractScalar) and node.args.get("only_json_types") is not None:
        inner, keys = _keys(node.this.unnest())
        return inner, [*keys, *_named(node.expression)]
    if isinstance(node, exp.Cast) and node.is_type("json", "jsonb"):
        return node.this, []
    return node, []


def _named(path: exp.Expr) -> list[exp.Expr]:
    """The keys of a path, as literals."""
    if not isinstance(path, exp.JSONPath):
        return [path]
    fields: list[exp.Expr] = []
    for part in path.expressions[1:]:
        if isinstance(part, exp.JSONPathKey):
            fields.append(exp.Literal.string(str(part.this)))
        elif isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int):
            fields.append(exp.Literal.number(part.this))
        else:
            fields.append(exp.null())
    return fields


def json_arrow(node: exp.Expr) -> exp.Expr | None:
    """``json -> 'a' ->> 'b'``: the text at a path. (``->`` alone would return JSON, which is not a type here.)"""
    if node.args.get("only_json_types") is None:
        return None  # json_extract(json, '$.a') and similar calls
    if isinstance(node, exp.JSONExtract) and not isinstance(node, exp.JSONExtractScalar):
        outer = node.parent
        while isinstance(outer, exp.Paren):
            outer = outer.parent
        if isinstance(outer, exp.JSONExtract | exp.JSONExtractScalar):
            return None  # the enclosing operator includes it
        raise Unsupported("`->` gives JSON, which is not a type here", hint="`->>` gives the text: column ->> 'key'")
    inner, keys = _keys(node)
    return _text_at(inner, keys, "->>")


def json_braces(node: exp.Expr) -> exp.Expr:
    """``json #>> '{a,b}'``: the text at a path."""
    path = node.expression
    if not isinstance(node, exp.JSONBExtractScalar):
        raise Unsupported("`#>` gives JSON, which is not a type here", hint="`#>>` gives the text: column #>> '{a,b}'")
    if not isinstance(path, exp.Literal) or not re.fullmatch(r"\{[^{}]*\}", path.name):
        raise Unsupported("the path of #>> must be a string like '{a,b}'", hint="get_json_object(json, '$.a.b')")
    keys: list[exp.Expr] = [exp.Literal.string(k.strip().strip('"')) for k in path.name[1:-1].split(",") if k.strip()]
    return _text_at(_keys(node.this)[0], keys, "#>>", either=True)


def _at_path(values: list[exp.Expr]) -> exp.Expr:
    """json_extract_path_text(json, 'a', 'b')."""
    return _text_at(values[0], values[1:], "a path", either=True)


def like_pattern(node: exp.Expr) -> exp.Expr | None:
    """regexp_like(text, pattern, 'i'), and ``text ~* pattern``: Spark has flags in the pattern."""
    flag = node.args.get("flag")
    flags = "i" if isinstance(node, exp.RegexpILike) else "" if flag is None else flag.name
    if isinstance(node, exp.RegexpLike) and flag is None:
        return None
    if flag is not None and (not isinstance(flag, exp.Literal) or not set(flags) <= {"i", "c"}):
        raise Unsupported(
            f"the flags '{flags[:20]}' of regexp_like are not supported", hint="write 'i', or (?i) in the pattern"
        )
    pattern = node.expression.copy()
    if flags.endswith("i"):  # the last flag wins
        pattern = exp.func("concat", exp.Literal.string("(?i)"), pattern)
    return exp.RegexpLike(this=node.this.copy(), expression=pattern)


def similar(_: exp.Expr) -> exp.Expr:
    """Rejects SIMILAR TO, which has a pattern language of its own."""
    raise Unsupported("SIMILAR TO is not supported", hint="write LIKE 'a%', or RLIKE '^(a|b).*$' for choices")


def among(node: exp.Expr) -> exp.Expr | None:
    """``x = ANY (array)`` becomes a lambda over an element `x`, which must not collide with a column of this name."""
    array = node.expression.this.unnest() if isinstance(node.expression, exp.Any) else None
    if array is None or isinstance(array, exp.Query) or all(c.name.lower() != "x" for c in node.find_all(exp.Column)):
        return None
    return exp.ArrayContains(this=array.copy(), expression=node.this.copy())


def sliced(node: exp.Expr) -> exp.Expr | None:
    """``tags[1:2]``: Spark has slice."""
    if any(isinstance(e, exp.Slice) for e in node.expressions):
        raise Unsupported("a slice `array[a:b]` is not supported", hint="write slice(array, start, length)")
    return None


def _all(_: list[exp.Expr]) -> exp.Expr:
    """``x = ALL (array)``: Spark has forall."""
    raise Unsupported("ALL of an array is not supported", hint="write forall(array, e -> x = e)")


def trimmed(node: exp.Expr) -> exp.Expr | None:
    """ltrim(text, 'x'): Postgres takes the text first, Spark the characters. Rejected if the order matters."""
    if node.args.get("position") and isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Column):
        where = str(node.args["position"]).upper()
        raise Unsupported(
            f"{'l' if where == 'LEADING' else 'r'}trim of a string takes the characters first, unlike in Postgres",
            hint=f"write TRIM({where} {node.this.sql(dialect='spark')} FROM {node.expression.sql(dialect='spark')})",
        )
    return None


def from_pattern(node: exp.Expr) -> exp.Expr | None:
    """substring(text FROM 'pattern')."""
    start = node.args.get("start")
    if not isinstance(start, exp.Literal) or not start.is_string:
        return None
    if node.args.get("length") is not None or "(" in start.name:
        raise Unsupported(
            "substring with such a pattern is not supported", hint="write regexp_extract(text, pattern, group)"
        )
    return exp.func("regexp_substr", node.this.copy(), start.copy(), dialect="spark")


def is_json(_: exp.Expr) -> exp.Expr:
    """``text IS JSON``."""
    raise Unsupported("IS JSON is not supported", hint="write get_json_object(text, '$') IS NOT NULL")


def _bin(values: list[exp.Expr]) -> exp.Expr:
    """date_bin(stride, ts, origin): the start of the stride that contains a time."""
    stride, time, origin = values
    stride_text = (
        f"{stride.name} {stride.unit.name}" if isinstance(stride, exp.Interval) and stride.unit else stride.name
    )
    micros = Duration.positive(stride_text, what="the stride of date_bin").micros
    at = call("unix_micros", exp.cast(time, "TIMESTAMP"))
    since = exp.Sub(this=at.copy(), expression=call("unix_micros", exp.cast(origin, "TIMESTAMP")))
    return call("timestamp_micros", exp.Sub(this=at, expression=call("pmod", since, exp.Literal.number(micros))))


def _counted(nulls: bool) -> Form:
    """num_nulls(a, b) and num_nonnulls(a, b)."""

    def form(values: list[exp.Expr]) -> exp.Expr:
        call: exp.Expr | None = None
        for value in values:
            null: exp.Expr = exp.Is(this=exp.paren(value.copy()), expression=exp.null())
            one = exp.cast(exp.paren(null if nulls else exp.Not(this=null)), "INT")
            call = one if call is None else exp.Add(this=call, expression=one)
        return exp.paren(call) if call is not None else exp.Literal.number(0)

    return form


def _replaced_in_array(values: list[exp.Expr]) -> exp.Expr:
    """array_replace(array, old, new)."""
    array, old, new = values
    each = exp.to_identifier("element_")
    same = exp.NullSafeEQ(this=exp.column("element_"), expression=old)
    body = exp.Case(ifs=[exp.If(this=same, true=new)], default=exp.column("element_"))
    return exp.Transform(this=array, expression=exp.Lambda(this=body, expressions=[each]))


def _prepended(values: list[exp.Expr]) -> exp.Expr:
    """array_prepend(element, array) of Postgres, if a literal shows the order; Spark takes the array first."""
    first, second = values
    swapped = isinstance(first, exp.Literal) and not isinstance(second, exp.Literal)
    return exp.func("array_prepend", *((second, first) if swapped else (first, second)), dialect="spark")


def _letters(pattern: str) -> Form:
    """IS_ALPHA(text) and IS_DIGIT(text) of Flink: false for NULL and for the empty string."""

    def form(values: list[exp.Expr]) -> exp.Expr:
        matches = exp.RegexpLike(this=values[0], expression=exp.Literal.string(pattern))
        return exp.Coalesce(this=matches, expressions=[exp.false()])

    return form


def _zones(values: list[exp.Expr]) -> exp.Expr:
    """CONVERT_TZ(text, from, to) of Flink: the text of the same instant in another zone."""
    text, of, to = values
    moment = _renamed("to_utc_timestamp")([exp.cast(text, "TIMESTAMP"), of])
    there = _renamed("from_utc_timestamp")([moment, to])
    return exp.func("date_format", there, exp.Literal.string("yyyy-MM-dd HH:mm:ss"), dialect="spark")


def _since_1970(values: list[exp.Expr]) -> exp.Expr:
    """TO_TIMESTAMP_LTZ(number, 0 or 3) of Flink."""
    number, precision = values
    names = {"0": "timestamp_seconds", "3": "timestamp_millis"}
    known = isinstance(precision, exp.Literal) and not precision.is_string
    if not known:
        return call("to_timestamp_ltz", number, precision)
    if precision.name not in names:
        raise Unsupported(
            f"the precision {precision.name} of to_timestamp_ltz", hint="0 for seconds, 3 for milliseconds"
        )
    return call(names[precision.name], number)


def _matches(values: list[exp.Expr]) -> exp.Expr:
    """regexp_matches(text, pattern, 'i') of DuckDB."""
    condition = like_pattern(exp.RegexpLike(this=values[0], expression=values[1], flag=values[2]))
    assert condition is not None
    return condition


def _renamed(name: str) -> Form:
    return lambda values: exp.func(name, *values, dialect="spark")


ANY_NUMBER = tuple(range(1, 33))
FORMS: dict[str, tuple[tuple[int, ...], Form]] = {
    "json_extract_path_text": (ANY_NUMBER[1:], _at_path),
    "jsonb_extract_path_text": (ANY_NUMBER[1:], _at_path),
    "jsonb_array_length": ((1,), _renamed("json_array_length")),
    "to_jsonb": ((1,), _renamed("to_json")),
    "json_string": ((1,), _renamed("to_json")),
    "regexp_matches": ((3,), _matches),
    "regexp_split_to_array": ((2,), _renamed("split")),
    "string_split_regex": ((2,), _renamed("split")),
    "make_timestamptz": ((6,), _renamed("make_timestamp")),
    BINNED: ((3,), _bin),
    "all": ((1,), _all),
    "num_nulls": (ANY_NUMBER, _counted(nulls=True)),
    "num_nonnulls": (ANY_NUMBER, _counted(nulls=False)),
    "array_replace": ((3,), _replaced_in_array),
    "array_prepend": ((2,), _prepended),
    "is_alpha": ((1,), _letters(r"^\p{L}+$")),
    "is_digit": ((1,), _letters(r"^\p{Nd}+$")),
    "convert_tz": ((3,), _zones),
    "to_timestamp_ltz": ((2,), _since_1970),
    "timezone": ((2,), lambda v: _renamed("from_utc_timestamp")([v[1], v[0]])),
    "map_union": ((2,), _renamed("map_concat")),
    "list_concat": ((2,), _renamed("concat")),
    "list_value": (ANY_NUMBER, _renamed("array")),
    "epoch_ms": ((1,), lambda v: call("unix_millis", v[0])),
    "epoch_us": ((1,), lambda v: call("unix_micros", v[0])),
    "prefix": ((2,), _renamed("startswith")),
    "row": (ANY_NUMBER, _renamed("struct")),
}
"""From name to the allowed numbers of arguments, and the Spark equivalent."""

NODES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.JSONExtract: json_arrow,
    exp.JSONExtractScalar: json_arrow,
    exp.JSONBExtract: json_braces,
    exp.JSONBExtractScalar: json_braces,
    exp.RegexpLike: like_pattern,
    exp.RegexpILike: like_pattern,
    exp.SimilarTo: similar,
    exp.EQ: among,
    exp.Bracket: sliced,
    exp.Trim: trimmed,
    exp.Substring: from_pattern,
    exp.JSON: is_json,
    exp.Week: lambda n: _renamed("weekofyear")([n.this.copy()]),
    exp.ArrayPrepend: lambda n: (
        _prepended([n.this.copy(), n.expression.copy()])
        if isinstance(n.this, exp.Literal) and not isinstance(n.expression, exp.Literal)
        else None
    ),
}
"""Operators and calls that the parser knows; None leaves them unchanged."""
