"""The pages tell the truth: their examples run, their tables match the code."""
