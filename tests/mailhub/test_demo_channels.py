"""`make demo CHANNELS=all`: four vendors of the real world as sandboxes, each called by what mailhub ships for it."""

import os
import re
from pathlib import Path

import pytest

from tests.mailhub.test_demo import DEADLINE, Demo, home, servers_run
from tests.waiting import exit_of

pytestmark = pytest.mark.slow("processes")

__all__ = ["home"]


@pytest.mark.skipif(os.environ.get("MAILHUB_NIGHTLY") != "1", reason="a whole demo more: MAILHUB_NIGHTLY=1")
@pytest.mark.timeout(DEADLINE)
def test_letters_sms_and_mails_go_out_side_by_side_and_all_of_them_are_reported(home: Path) -> None:
    demo = Demo(home, "--channels", "all")
    try:
        assert exit_of(demo.process) == 0, demo.logs(home)
        said = demo.text()
        assert "Traceback" not in said and "The books agree" in said, said
        for name, reported in (
            ("Lob", "60 delivered, 1 came back"),
            ("Twilio", "100 delivered, 1 came back"),
            ("Amazon SES", "202 delivered, 2 came back, 1 called it spam"),
            ("Mailgun", "301 delivered, 1 came back, 1 called it spam"),
        ):
            assert f"{name} has reported all: {reported}" in said, said
        begun = [said.index(f"{name} reports the first") for name in ("Lob", "Twilio", "Amazon SES", "Mailgun")]
        taken = [found.start() for found in re.finditer(r"has taken \d", said)]
        assert len(taken) == 4 and max(begun) < max(taken), "side by side"
        assert "Every report of the vendors is in the rows: 663 delivered, 5 came back, 2 called it spam" in said
        assert "Nobody writes again to the 5 who do not exist or called it spam" in said
        assert not servers_run(home)
    finally:
        demo.end()
