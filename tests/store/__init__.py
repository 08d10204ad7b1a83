"""What is true of one store alone."""
