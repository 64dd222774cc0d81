"""The types of aggregates: which arguments they accept, and what they return. Operators use them when they are
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import BOOLEAN_ONLY, PLAIN_ONLY, settled_type, takes
from millstream.model.steps.aggregation import summed_type
from millstream.model.types.schema import ddl_type
from millstream.plan.parts import Measure


def bound_measures(
    view: str, measures: tuple[Measure, ...], argument: Callable[[Measure], pa.DataType]
) -> tuple[Measure, ...]:
    """Measures with the types of their arguments."""
    bound = []
    for measure in measures:
        if not measure.has_argument:
            bound.append(measure)
            continue
        of = argument(measure)
        if not takes(measure.kind, of):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` needs numbers, but its argument is {ddl_type(of)}",
                hint="cast it, as in ms.sum('CAST(price AS DOUBLE)')",
            )
        if measure.kind in BOOLEAN_ONLY and not pa.types.is_boolean(of):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` needs a condition, but its argument is {ddl_type(of)}",
                hint="compare it, as in price > 0",
            )
        values = [f.type for f in of] if measure.kind in ("min_by", "max_by") else [of]
        if measure.kind in PLAIN_ONLY and any(pa.types.is_nested(v) for v in values):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` has no order over {ddl_type(of)}",
                hint="use a field of it, or to_json(...)",
            )
        bound.append(replace(measure, type=of))
    return tuple(bound)


def answer_type(measure: Measure) -> pa.DataType:
    """The result type of a bound measure."""
    if measure.kind == "user":
        return measure.returns
    assert measure.type is not None or not measure.has_argument
    return settled_type(measure.kind, measure.type) or summed_type(measure.kind, measure.type)


def check_keys(view: str, keys: Mapping[str, pa.DataType]) -> None:
    """Refuse keys that are not plain values."""
    for name, kind in keys.items():
        if pa.types.is_nested(kind):
            raise Unsupported(
                f"the key `{name}` of `{view}` is {kind}",
                hint="key by plain values, e.g. by a field of the struct or by to_json(...)",
            )


def same_type(view: str, name: str, kinds: list[pa.DataType]) -> pa.DataType:
    """The type that a column has in all streams of a union."""
    if any(k != kinds[0] for k in kinds):
        raise SchemaError(
            f"the column `{name}` of `{view}` has different types in the streams of a union: "
            + ", ".join(ddl_type(k) for k in kinds),
            hint="cast one of them in a .select(...)",
        )
    return kinds[0]


def measures_content(measures: tuple[Measure, ...], identify: Callable[[object], str]) -> list[object]:
    """The content of measures for fingerprints."""
    return [(m.name, m.kind, m.has_argument, str(m.returns), identify(m.user) if m.user else "") for m in measures]
