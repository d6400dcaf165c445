"""The secret of an installation that was given none: made once, kept in its home, readable by its owner only."""

import os
import secrets
from pathlib import Path


def secret_key(home: Path) -> str:
    """The key in home/secret_key; the first caller makes it. Several processes may call at once."""
    path = home / "secret_key"
    try:
        return path.read_text()
    except FileNotFoundError:
        home.mkdir(parents=True, exist_ok=True)
    draft = home / f".secret_key.{os.getpid()}.{secrets.token_hex(4)}"
    draft.touch(mode=0o600)
    draft.write_text(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)  # whoever links first decides; the others read
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text()
