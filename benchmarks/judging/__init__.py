"""Many questions to a judge at once: how close the reward server comes to what its concurrency allows."""

from judging.questions import judge_figures

__all__ = ["judge_figures"]
