"""Supervised fine-tuning: the model learns to write the answers of a dataset. docs/sft.md says how."""
