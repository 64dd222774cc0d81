"""SQL: compiles the text of a statement to the steps of a flow, or to a query that the store executes."""
