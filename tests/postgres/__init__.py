"""What the contract cannot know about rooms in PostgreSQL, on a real server that the tests start."""
