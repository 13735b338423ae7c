"""Installs what the named languages need: `python tests/languages/install_languages.py ruby node`."""

from __future__ import annotations

import sys

from language_servers import LANGUAGES, MissingError, install


def main(names: list[str]) -> int:
    """Exit status."""
    for name in names:
        try:
            install(LANGUAGES[name])
        except (MissingError, AssertionError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
