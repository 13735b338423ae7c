"""Memory of a training step: of the process, and of torch's tensors alone."""

from __future__ import annotations

from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def resident_bytes() -> int:
    """What the process holds in memory now."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return int(value.split()[0]) * 1024
    raise AssertionError("/proc/self/status has no VmRSS")


class TensorWeigher:
    """Adds up what torch allocates and frees, from its construction on."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.start()

    def stop(self) -> int:
        """The most bytes that tensors took at once, beyond what they took at the beginning."""
        self._profile.stop()
        assert self._profile.profiler is not None
        held = peak = 0
        events = [e for e in self._profile.profiler.kineto_results.events() if e.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            held += event.nbytes()
            peak = max(peak, held)
        return peak
