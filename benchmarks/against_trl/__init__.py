"""A training run of this project and one of plain TRL on the same work, step by step."""
