"""The SQL shell: prompt, completion, output, backslash commands, WATCH."""
