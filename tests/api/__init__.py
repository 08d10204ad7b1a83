"""The shape of the Python API, and the settings behind it."""
