"""Hosts of agents: what they say to hooks and hear from them, and whole sessions, scripted."""
