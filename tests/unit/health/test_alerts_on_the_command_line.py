"""What `plaudit job get` prints of alerts."""

from __future__ import annotations

from plaudit.cli.job import _alert_fields
from plaudit.client.models import JobAlert


def test_the_newest_alerts_with_the_steps_of_their_episodes() -> None:
    lasting = JobAlert("kl_blowup", "", "critical", "it jumped; go back", {"kl_div": 20.0}, 80, None, None)
    ended = JobAlert("non_finite", "", "warning", "step 7 was skipped", {}, 7, None, 27)
    assert _alert_fields([lasting, ended]) == {
        "alert 1": "critical: kl_blowup since step 80: it jumped; go back",
        "alert 2": "warning: non_finite from step 7 to 27: step 7 was skipped",
    }
    assert _alert_fields([]) == {}
