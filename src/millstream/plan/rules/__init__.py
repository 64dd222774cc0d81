"""The planner's rules, one per file: a function from plan to plan."""
