"""The nodes of a flow: frozen values that know their inputs and the schema of their result."""
