"""Runs other people's reward code: no network, no files, another user, and limits on all that it takes."""

from reward_service.sandbox._confinement import SandboxUnavailable
from reward_service.sandbox.pool import SandboxPool
from reward_service.sandbox.program import Program, ProgramRefused, Signature
from reward_service.sandbox.settings import SandboxSettings

__all__ = ["Program", "ProgramRefused", "SandboxPool", "SandboxSettings", "SandboxUnavailable", "Signature"]
