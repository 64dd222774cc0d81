"""Types and values: schemas, scalar types, durations and intervals, and the rules of assignment."""
