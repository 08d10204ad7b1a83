"""The command line, driven as people and programs drive it: as a program of its own."""
