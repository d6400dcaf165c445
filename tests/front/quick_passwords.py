"""mailhub's settings, but to check a password takes a tenth of a processor's time: for a server that checks many."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from mailhub.settings import *  # noqa: F403


class Quick(PBKDF2PasswordHasher):
    iterations = PBKDF2PasswordHasher.iterations // 10


PASSWORD_HASHERS = [f"{__name__}.Quick"]
