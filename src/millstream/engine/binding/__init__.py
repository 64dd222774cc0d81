"""Binding: the types of a plan, as Spark's analyser infers them."""
