"""The `plaudit` command."""
