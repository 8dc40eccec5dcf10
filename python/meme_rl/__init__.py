"""Trains human-level Atari agents, and plays what was trained."""
