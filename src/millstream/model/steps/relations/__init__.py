"""The steps of relational operators, each in a module with the name of its operator in `plan/operators/relations`."""
