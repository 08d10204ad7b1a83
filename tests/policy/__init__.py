"""The rules of the house, as pure verdicts."""
