"""Letters between systems: real daemons, each on a room of its own."""
