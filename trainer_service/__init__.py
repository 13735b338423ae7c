"""The trainer service: runs, their processes and their journals."""
