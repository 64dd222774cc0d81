"""The flows of a deployment: which flow a view joins, their plans, and PAUSE and RESUME."""
