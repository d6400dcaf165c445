"""An answer about us says whom it concerns: one sponsor's sender, or the account that others use, too."""

import pytest

from vendors.causes import AnswerCause
from vendors.causes.scopes import concerns_sender
from vendors.outcomes import NotSent, spare_credential


@pytest.mark.parametrize(
    "said",
    [
        "Sender address rejected: not owned by user anton",
        "550 5.1.8 Sender rejected",
        "refused: domain_not_verified The sender news@anton.example is not verified",
        "The from address does not match a verified Sender Identity.",
        "Email address is not verified. The following identities failed the check in region EU-WEST-1: news",
        "The 'From' address you supplied (news@anton.example) is not a Sender Signature on your account.",
        "The domain anton.example is unverified",
        "550 5.7.60 SMTP; Client does not have permissions to send as this sender",
        "550-5.7.26 Unauthenticated email from anton.example is not accepted due to domain's DMARC policy.",
        "The Sender ID is not registered for this country",
        "Invalid 'From' phone number",
        "INVALID_ORIGINATING_ADDRESS",
    ],
)
def test_an_answer_about_a_sender_spares_the_credential(said: str) -> None:
    assert concerns_sender(said)
    outcome = NotSent(said, scope="credential", pause=True, cause=AnswerCause.US)
    spared = spare_credential(outcome)
    assert (spared.scope, spared.pause, spared.asks_to_wait) == ("sender", True, True)


@pytest.mark.parametrize(
    "said",
    [
        "http 401: login or account refused",
        "535 5.7.8 Error: authentication failed",
        "553 5.7.1 Sender address rejected: not logged in",
        "530 5.7.0 Authentication required to send from this address",
        "554 5.7.1 Relay access denied",
        "Your account is suspended",
        "550 5.7.1 The IP address of the sender is listed",
        "550 Message rejected due to the reputation of the sender domain",
        "The API key is not allowed to send",
        "You have exceeded the daily quota of this sender address",
        "Access denied",
    ],
)
def test_an_answer_about_login_account_or_server_does_not(said: str) -> None:
    assert not concerns_sender(said)
    outcome = NotSent(said, scope="credential", pause=True, cause=AnswerCause.US)
    assert spare_credential(outcome) is outcome


def test_a_wait_concerns_the_credential_whatever_it_says() -> None:
    outcome = NotSent("sender address temporarily refused", 30.0, scope="credential", cause=AnswerCause.CAPACITY)
    assert spare_credential(outcome) is outcome
