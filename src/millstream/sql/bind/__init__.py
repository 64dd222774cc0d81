"""Binding: from the clauses of a SELECT to the steps of a flow."""
