"""Scores stored completions of a job again, beside their old scores. docs/rescore.md tells more."""
