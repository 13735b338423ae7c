"""Models: exports of jobs' checkpoints, listed, made, read and deleted."""
