"""The rules of the room, as pure decisions."""
