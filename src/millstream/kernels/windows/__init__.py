"""Kernels of windowed state: window assignment, panes, triggers, count windows, corrections, replay of late rows."""
