"""Reward servers: the author kit, the Score engine, and the built-in rewards. Installable without torch."""
