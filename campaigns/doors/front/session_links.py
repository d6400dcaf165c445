"""Names and links of sessions."""

from uuid import UUID

SESSIONS = "/api/v1/sessions"


def session_name(session: UUID) -> str:
    return f"ses_{session.hex}"


def session_links(session: UUID, revision: int = 0) -> dict[str, str]:
    """Return the session's links. `revision`: named by the links that may cause more calls."""
    here = f"{SESSIONS}/{session_name(session)}"
    named = {verb: f"{here}/{verb}?revision={revision}" for verb in ("retry", "resume")}
    return {"self": here} | {verb: f"{here}/{verb}" for verb in ("messages", "stop", "pause")} | named
