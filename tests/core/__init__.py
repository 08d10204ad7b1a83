"""What the verbs promise, asked through the public door, on every store."""
