"""The chipset's channels and flows, over a state folder of files."""
