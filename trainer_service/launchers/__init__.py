"""Where runs are started: a process on this machine."""
