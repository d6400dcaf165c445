"""The Django application: prepares database connections, and keeps beat's rows and queues up to date."""

import logging
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register
from django.db import DatabaseError, InterfaceError, transaction
from django.db.backends.signals import connection_created
from django.db.models.signals import post_delete, post_migrate, post_save

from mailhub.celery import app as celery_app  # noqa: F401  (before any task: shared_task uses the current application)
from vendors import alarms

log = logging.getLogger(__name__)


class MailhubConfig(AppConfig):
    name = "mailhub"

    def ready(self) -> None:
        from mailhub import (
            checks,  # noqa: F401
            model_texts,
            running_versions,
        )
        from vendors import liveness
        from vendors.models import Vendor

        liveness.announce = running_versions.keep_announcing
        register(_clocks_were_right, "clocks", deploy=True)
        model_texts.put_into_language()
        connection_created.connect(_prepare_session)
        post_migrate.connect(_on_migrate, sender=self)
        post_save.connect(_on_vendor, sender=Vendor)
        post_delete.connect(_on_vendor, sender=Vendor)


def _prepare_session(connection: Any, **_: Any) -> None:
    """Set up a database session.

    PostgreSQL ends a transaction that stays idle, since others wait for the rows it has locked. JIT is off, because
    compiling costs more than it saves on short statements. The session also notes its server (engine/failover).
    """
    from campaigns.engine.failover import guard

    params = {"idle": str(round(settings.TRANSACTION_IDLE_SECONDS * 1000)), "tables": guard.newest_migrations()}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, false), "
            f"set_config('jit', 'off', false), {guard.NOTED}",
            params,
        )
    if guard.ask_first is not None:
        guard.ask_first()


def _clocks_were_right(**_: Any) -> list[CheckMessage]:
    """Report times found in the future within the last hour. `doctor` requests this check by its tag."""
    from mailhub import stored_moments

    try:
        found = stored_moments.found_lately()
    except DatabaseError:  # unavailable, or not migrated yet
        return []
    return [Warning(one, hint="Set the clocks of all machines by NTP.", id="mailhub.W006") for one in found]


def _on_migrate(using: str, **_: Any) -> None:
    from django.db import connections

    from campaigns.engine.failover import guard
    from mailhub import installation

    # migrate may run for only one app
    needed = {"django_celery_beat_periodictask", "vendors_vendor", "auth_group", "django_admin_log", "campaigns_store"}
    needed |= {"mailhub_givenpermission"}
    if needed <= set(connections[using].introspection.table_names()):
        installation.sync_beat()
        installation.make_permissions()
        installation.create_groups()
        guard.finish_migration()


def _on_vendor(update_fields: frozenset[str] | None = None, **_: Any) -> None:
    """After a vendor was added, changed or deleted, update beat's rows and announce its queue to the workers."""
    from mailhub import installation, worker_queues

    def _sync_and_log() -> None:
        try:
            installation.sync_beat()
        except (DatabaseError, InterfaceError) as why:
            alarms.BEAT_TABLE_OUTDATED.log(log, why)

    if update_fields is None or installation.SHAPING & update_fields:
        transaction.on_commit(_sync_and_log, robust=True)
        transaction.on_commit(worker_queues.announce_queues, robust=True)
