"""What takes minutes is for `make test-faults` alone."""

import os

collect_ignore = [] if os.environ.get("PLAUDIT_FAULTS") == "long" else ["test_rewards_in_mid_run.py"]
