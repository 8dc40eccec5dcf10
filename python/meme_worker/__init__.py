"""The Python side of the worker protocol; see docs/environments.md."""
