"""Many streams at a time against a server, and what they say of it."""
