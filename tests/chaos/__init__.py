"""Bad days: load, faults and nonsense against the real server, for `make chaos`."""
