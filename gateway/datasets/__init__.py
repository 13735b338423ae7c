"""Datasets: uploads, hub ids, local paths, and those built in."""
