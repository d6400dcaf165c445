"""What SpamAssassin thinks of the newsletter that the tutorial sends, as a relay gets it; without its network tests."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from campaigns.content import previews
from campaigns.models import Campaign
from campaigns.suppression.links import LetterLinks
from campaigns.texts import plain_text, templates
from campaigns.texts.templates import UNSUBSCRIBE_URL
from tests.contracts.test_dkim import origin
from tests.contracts.test_mime import unstuffed
from tests.waiting import DEADLINE
from vendors.adapters import mime

PROGRAM = shutil.which("spamassassin", path=f"/usr/local/bin:/usr/bin:{os.environ.get('PATH', '')}")
MOST = 1.0  # points; filters begin to doubt at 5
NEWSLETTER = Path(__file__).parents[2] / "sandbox" / "demo" / "newsletter.html"
STATUS = re.compile(rb"^X-Spam-Status: \w+, score=(-?[0-9.]+) .*?tests=(.*?) autolearn=", re.DOTALL | re.MULTILINE)

pytestmark = [pytest.mark.slow("programs"), pytest.mark.skipif(not PROGRAM, reason="SpamAssassin is not installed")]


def newsletter() -> bytes:
    """As the sender makes it: of the way that a mail took, another machine would see something else."""
    html = NEWSLETTER.read_text()
    text = plain_text.made_from(html)
    content = templates.compile_templates(
        "Spring at Velma's", html, True, text=text, given={UNSUBSCRIBE_URL: "https://..."}
    )
    links = LetterLinks("https://mail.example.com", True, 1, 0, "email", AESSIV(bytes(32)), bytes(32))
    [letter] = previews.render_first_letters(
        Campaign(html=True), content, links, [("ann@example.org", {"name": "Ann"})], 1
    )
    assert [name for name, _ in letter.headers] == ["List-Unsubscribe", "List-Unsubscribe-Post"]
    velma = replace(origin(), address="news@example.com", name="Velma's reading room", reply_to="velma@example.com")
    return unstuffed(b"".join(mime.compose_mail(mime.parse_origin(velma), "ann@example.org", letter)))


def score(mail: bytes, home: Path) -> tuple[float, str]:
    """Points, and the rules that gave them."""
    assert PROGRAM
    options = ["--local", "--prefs-file=/dev/null", "--cf=use_bayes 0", "--cf=report_safe 0"]
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run([PROGRAM, *options], input=mail, capture_output=True, env=environment, timeout=DEADLINE)
    found = STATUS.search(done.stdout)
    assert found, f"{done.stdout.decode()}{done.stderr.decode()}"
    return float(found[1]), found[2].decode()


def test_the_tutorials_newsletter_is_no_spam(tmp_path: Path) -> None:
    points, rules = score(newsletter(), tmp_path)
    print(f"SpamAssassin gives {points} points: {rules}")
    assert points <= MOST, rules


def test_a_mail_that_is_spam_would_be_seen(tmp_path: Path) -> None:
    gtube = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"  # SpamAssassin's own test
    points, _ = score(newsletter().replace(b"Until soon", gtube), tmp_path)
    assert points > 100
