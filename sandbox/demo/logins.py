"""Users who may try the demo in a browser. Only the demo creates them, with a new password each time."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import Group, User

from campaigns.models import Sponsor
from mailhub import installation
from sandbox.demo.setup import HERE, SPONSOR, run

APPROVAL_ABOVE = 100  # recipients
READERS, MEMBERS = HERE / "readers.csv", HERE / "members.csv"
NEWS = ("--channel=email", "--subject=Spring at Velma's", f"--body={HERE / 'news.txt'}")
LETTER = ("--channel=print", "--subject=The reading room", f"--body={HERE / 'letter.html'}", "--html")


@dataclass(frozen=True, slots=True)
class DemoLogin:
    """A user. `group`: one of mailhub/installation.py; "" for the superuser."""

    user: str
    group: str
    may: str


OWNER = DemoLogin("owner", "campaign owner", f"makes campaigns of {SPONSOR}, follows and stops them")
APPROVER = DemoLogin("approver", "campaign approver", f"approves those of more than {APPROVAL_ABOVE} recipients")
OPERATOR = DemoLogin("demo", "", "operates everything: vendors, jobs, doubts, users")
LOGINS: Sequence[DemoLogin] = (OWNER, APPROVER, OPERATOR)


def make(password: str) -> None:
    """Create the users. The demo's sponsor may still lack a campaign."""
    installation.create_groups()
    sponsor, _ = Sponsor.objects.get_or_create(name=SPONSOR)
    for one in LOGINS:
        address = f"{one.user}@sandbox.example"
        if not one.group:
            User.objects.create_superuser(one.user, address, password)
            continue
        user = User.objects.create_user(one.user, address, password)
        user.groups.add(Group.objects.get(name=one.group))
        sponsor.users.add(user)


def furnish() -> None:
    """Add an identity and templates for the owner's first campaign, and set the approver's threshold.

    Called after the story's own campaigns are loaded, so those wait for nobody.
    """
    run("identity", "add", SPONSOR, "news", "--from=Velma <news@sandbox.example>")
    run("template", "add", SPONSOR, "Spring news", *NEWS)
    run("template", "add", SPONSOR, "Invitation", *LETTER)
    run("sponsor", "set", SPONSOR, f"--approval-above={APPROVAL_ABOVE}")
