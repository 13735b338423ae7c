"""A real model on a real task: where it begins, what it learns, and how sure that is."""
