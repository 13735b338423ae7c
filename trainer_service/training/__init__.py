"""Training itself: the only place that imports torch. Runs in a process of its own."""
