"""Kernels of windowed state: assignment, panes, triggers, count windows, corrections, replay of late rows."""
