"""Texts of the audit, in English; pages translate them."""

from django.utils.translation import gettext_noop

# The rows named by a broken question of the audit.
BREACHES = (
    gettext_noop("message %(message_id)s of job %(job_id)s"),
    gettext_noop("message %(message_id)s of campaign %(campaign_id)s"),
    gettext_noop("message %(message_id)s, moved at %(at)s"),
    gettext_noop("message %(message_id)s: %(decisions)s decisions"),
    gettext_noop("messages %(message_id)s and %(other_id)s: %(letter)s"),
    gettext_noop("jobs %(job_id)s and %(other_id)s of campaign %(campaign_id)s"),
    gettext_noop("job %(job_id)s"),
    gettext_noop("job %(job_id)s: %(what)s"),
    gettext_noop("parent %(job_id)s"),
    gettext_noop("parent %(job_id)s: child %(child_id)s is %(state)s"),
    gettext_noop("parent %(job_id)s: %(parts)s and %(rest)s of %(size)s"),
    gettext_noop("campaign %(campaign_id)s: %(there)s of %(size)s"),
    gettext_noop("claim %(claim_id)s of job %(job_id)s"),
    gettext_noop("answers %(answers_id)s of job %(job_id)s"),
    gettext_noop("run %(run_id)s: %(jobs)s, not %(wanted)s"),
    gettext_noop("vendor %(vendor_id)s: %(accepted)s accepted of %(all)s"),
    gettext_noop("vendor %(vendor_id)s on %(day)s"),
    gettext_noop("vendor %(vendor_id)s: %(calls)s calls, not %(limit)s, in %(seconds)s s from %(at)s"),
    gettext_noop("credential %(credential_id)s"),
    gettext_noop("credential %(credential_id)s: %(called)s called, %(known)s in the ledger"),
    gettext_noop("sponsor %(sponsor_id)s, credential %(credential_id)s: %(there)s of %(wanted)s"),
    gettext_noop("sponsor %(sponsor_id)s, credential %(credential_id)s: %(there)s units of %(wanted)s"),
    gettext_noop("vendor %(vendor)s: %(units)s units at %(at)s"),
    gettext_noop("credential %(credential)s: %(units)s units at %(at)s"),
    gettext_noop("constraint of %(table)s: %(what)s"),
    gettext_noop("the table %(table)s is unlogged: a crash of PostgreSQL empties it"),
    gettext_noop("Say ALTER TABLE %(table)s SET LOGGED"),
    gettext_noop("Set %(setting)s = %(value)s"),
    gettext_noop("%(setting)s is %(value)s: a crash of the machine loses commits, and may destroy the database"),
    gettext_noop("%(setting)s is %(value)s: a crash of the machine may leave pages that are half written"),
    gettext_noop("%(setting)s is %(value)s: damaged pages become empty ones, and their rows are gone"),
    gettext_noop("%(table)s refuses messages by a constraint that a cut has left behind, message_until: %(what)s"),
    gettext_noop(
        "A clock was wrong: %(count)s × %(moment)s lay up to %(ahead)s ahead of PostgreSQL's, corrected %(at)s UTC"
    ),
    gettext_noop("mailcaster %(mailcaster_id)s"),
    gettext_noop("the store was taken over: %(system)s"),
)
