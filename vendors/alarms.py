"""The registry of alarms: every line that a service logs as a warning or worse.

Each has its text, level, meaning, action and metric, if there is one. A module logs it by `alarms.CODE.log(log, ...)`.
`python -m docs.tooling.alarms` makes docs/reference/alarms.md and the rules for Prometheus from here. The waiter, which
imports nothing of ours, logs its two texts itself. It is the lowest module, so that everything can name an alarm.
"""

import logging
from logging import CRITICAL, ERROR, WARNING
from typing import Any, NamedTuple


class Alarm(NamedTuple):
    level: int
    text: str  # the format of the line in the log
    meaning: str  # Markdown; links begin in docs/reference
    action: str
    metric: str = ""

    def log(self, logger: logging.Logger, *args: Any, level: int | None = None, exc_info: bool = False) -> None:
        """Log it with these arguments of its text. `level`: instead of its own, where it may be nothing unusual."""
        logger.log(self.level if level is None else level, self.text, *args, exc_info=exc_info, stacklevel=2)


class PrometheusRule(NamedTuple):
    """A rule for Prometheus to begin with."""

    name: str
    expression: str
    lasting: str = ""


PROMISE_BROKEN = Alarm(
    ERROR,
    "%s is broken: %s: %s (%s)",
    "The audit found rows that break a promise, P1 to P7; examples follow",
    "Pause the vendor and look at the rows: this is a defect",
    "mailhub_audit_breaches",
)

DISK_NEARLY_FULL = Alarm(
    ERROR,
    "%s has less than SPOOL_FREE_MEGABYTES left: larger bodies are refused",
    "The disk of temporary files is nearly full: larger requests get 507",
    "Free space, or set `TMPDIR`",
)

JOBS_RECOVERED = Alarm(
    WARNING,
    "recovered jobs %s: their sender has not been heard of for %s",
    "Their sender was silent for a lease",
    "Look for a killed or starved worker; `resolve --list`",
)

JOURNAL_READ = Alarm(
    WARNING,
    "a sender died: jobs %s go on; its journal had %s answers and %s messages not called, %s calls were open",
    "A sender process was killed; another one of its machine took over at once",
    "Look for the reason; the open calls are in doubt (`resolve --list`)",
)

NO_JOURNAL = Alarm(
    WARNING,
    "no journal of calls in %s: %s",
    "The folder of the home is full or cannot be written, so a kill leaves all that was claimed in doubt",
    "Make room or let it be written, then start the worker again; or set `JOURNAL=off`",
)

JOURNAL_UNFIT = Alarm(
    WARNING,
    "the journal %s proves nothing and is removed: %s",
    "It is damaged, a copy, or older than the last start of the machine: its calls are in doubt after the lease",
    "Nothing after a restart of the machine; else look at the disk",
)

JOURNAL_LEFT = Alarm(
    WARNING,
    "the journal %s is not read here: %s",
    "It belongs to another database, version or user; its calls are in doubt after the lease. Logged once a process",
    "Give each installation a home of its own",
)

BRAKE_PUT_ON = Alarm(
    WARNING,
    "credential %s: %s calls in a row without a clear answer: only single calls try it now",
    "The vendor hangs, cuts connections or answers 5xx; each such call is a message in doubt",
    (
        "Ask the vendor. A probe finds out by itself when it is back; `credential release` does it at once, "
        "`credential hold` stops the probes"
    ),
)

NOT_SENT = Alarm(
    WARNING,
    "not sent: %s",
    (
        "For five seconds a mailcaster stood idle beside work, or a taken job was not begun. The vendor, the number "
        "of jobs and the reason follow: no worker reads the queue, all streams are busy, or unknown. Repeated until "
        "it ends"
    ),
    "Start workers or add streams ([Scale](../how-to/scale.md)); read the worker's log",
    "mailhub_jobs_late",
)

QUOTA_NEARLY_USED = Alarm(
    WARNING,
    "quota: %s",
    "A sponsor has used as much of a quota as its warning says; logged once a day or month",
    "Raise the quota (`quota set`), or tell the sponsor; above it, new work is refused and jobs are held",
)

MOVED_TO_NEXT_VENDOR = Alarm(
    WARNING,
    "%s messages of job %s go by another vendor of its route",
    "A vendor stopped accepting work; the next one took over",
    "[Check that vendor](../how-to/routes.md): `route list`, `status`",
)

MOVE_FAILED = Alarm(
    ERROR,
    "job %s: what waits cannot go by another vendor",
    "An error while moving messages; the traceback follows and nothing moved. The next sweep retries",
    "If it stays, report the defect; stop the job or resume its vendor",
)

NIGHT_MISSED = Alarm(
    WARNING,
    "the nightly dispatch of %s on %s was missed: due %s, now %s",
    "Nothing ran from its time to the end of catch-up",
    "`dispatch_jobs`; check beat and the hub worker",
)

LONG_RETRY_AFTER = Alarm(
    WARNING,
    "a vendor asks to wait for %.0f s (%r): it is called again after a day",
    "Its Retry-After exceeds a day, most likely by mistake",
    "Ask the vendor; `credential resume VENDOR NAME` calls now",
)

RECEIVER_WAITS = Alarm(
    WARNING,
    "vendor %s: %s waits: %s",
    "A receiving domain answered about us or our rate; other domains go on",
    "[Read its answer](../how-to/receiving-domains.md): `receiver list`; mend reputation or rate",
)

RECEIVERS_WAIT = Alarm(
    WARNING,
    "vendor %s: %d more receivers wait",
    "Reports that came together name many receiving domains; only the first ones are logged by name",
    "[Read their answers](../how-to/receiving-domains.md): `receiver list`",
)

RECEIVER_WAITS_LONG = Alarm(
    WARNING,
    "vendor %s: %s has accepted nothing since %s: %s",
    "A receiving domain has taken none of our mail for four hours; logged once",
    "[Mend what its answer names](../how-to/receiving-domains.md), then `receiver resume`",
    "mailhub_receivers_waiting_seconds",
)

WINDOW_REBUILT = Alarm(
    WARNING,
    "vendor %s: the throttle's window was rebuilt from the ledger",
    "Redis had lost or changed it",
    "Nothing; if repeated, Redis loses data",
)

WINDOW_LOST = Alarm(
    WARNING,
    "job %s: the window cannot be rebuilt: %s",
    "Usually a clock; the reason follows",
    "Set the clocks",
)

REDIS_AWAY = Alarm(
    WARNING,
    "job %s: nothing is called, Redis is away: %s",
    "No permits. The sender tries again twice a second, and after a minute gives its job back",
    "Restore Redis",
)

TASK_NOT_NOTIFIED = Alarm(
    WARNING,
    "%s (%s): the broker cannot be reached, the sweep will notify again: %s",
    "The broker is away; nothing is lost",
    "Restore it",
)

QUEUE_NOT_NOTIFIED = Alarm(
    WARNING,
    "queue %s: the broker cannot be reached, the sweep will notify again: %s",
    "The broker is away; nothing is lost",
    "Restore it",
)

JOB_NOT_NOTIFIED = Alarm(
    WARNING,
    "%s %s: the broker cannot be reached, the sweep will notify again: %s",
    "The broker is away; nothing is lost",
    "Restore it",
)

DOUBTS_NOT_NOTIFIED = Alarm(
    WARNING,
    "the broker cannot be reached, beat will ask about doubts: %s",
    "The broker is away; nothing is lost",
    "Restore it",
)

RESULTS_WAIT = Alarm(
    WARNING,
    "%s results wait for the database: %s",
    "Answers are held in memory",
    "Restore PostgreSQL within a minute, or they become doubts",
)

ANSWERS_NOT_MERGED = Alarm(
    WARNING,
    "answers of %s jobs are not merged yet: %s",
    "The database failed briefly; the next lock of a job merges them, a sweep at the latest",
    "If repeated, check PostgreSQL",
)

LEASES_NOT_RENEWED = Alarm(
    WARNING,
    "%s leases are not renewed: %r",
    "The database did not answer for a third of `LEASE_SECONDS`; the next heartbeat retries",
    "If repeated, check PostgreSQL: jobs with expired leases are recovered",
)

CONTEXTS_NOT_READ = Alarm(
    WARNING,
    "the contexts of %s streams could not be read: %s",
    "The database failed briefly; each stream retries alone",
    "If repeated, check PostgreSQL",
)

NO_DATABASE = Alarm(
    WARNING,
    "job %s: no database: %s",
    "A sender cannot claim; nothing new is called",
    "Restore PostgreSQL",
)

NOTHING_CALLED = Alarm(
    WARNING,
    "nothing is called: %s",
    (
        "The store was taken over, restored or copied, lost commits, was away for long, or is just being compared "
        "with Redis after a crash; or the tables are being migrated or are another version's. The sentence says which"
    ),
    (
        "[`recover_store`](../how-to/back-up-and-restore.md), after a loss also check the disk; or finish `migrate` "
        "and start processes of the same version"
    ),
    "mailhub_halted",
)

HELD_UNTIL_DECIDED = Alarm(
    WARNING,
    "nothing is called: %s: %s",
    (
        "The store was taken over, restored or copied, lost commits, was away for long, or is just being compared "
        "with Redis after a crash; or the tables are being migrated or are another version's. The sentence says which"
    ),
    (
        "[`recover_store`](../how-to/back-up-and-restore.md), after a loss also check the disk; or finish `migrate` "
        "and start processes of the same version"
    ),
    "mailhub_halted",
)

DATABASE_CRASHED = Alarm(
    WARNING,
    "PostgreSQL has crashed: it has all that Redis remembers, so calls start again",
    "Nothing is lost; calls have resumed",
    "Find out why it crashed",
)

CANNOT_STORE = Alarm(
    ERROR,
    "no message can be stored: %s: an operator has to look at the audit",
    "A leftover constraint, or a missing partition, refuses new messages; programs get 503",
    "`audit` names it; [call the function again](../partitioning.md)",
)

COMMITS_LOST = Alarm(
    ERROR,
    "vendor %s: PostgreSQL has lost commits in a crash: %s calls",
    "Its disk or a setting drops commits: Redis remembers calls missing in the rows",
    "`manage.py doctor --installation`; mend that, then [`recover_store`](../how-to/back-up-and-restore.md)",
)

OTHER_SCHEMA = Alarm(
    ERROR,
    "the schema does not match this version: %s",
    "The tables changed under a sender. It stops calling and tries to store its answers for a minute",
    "Start the new version's processes; or restore the old tables within a minute, else open calls become doubts",
)

PIPELINING_LOST = Alarm(
    WARNING,
    "%s offers PIPELINING, but loses what is written ahead: it is done without",
    "A relay stalled a connection until `connect_timeout`; this process stops pipelining to it",
    "Nothing; its mail is slightly slower",
)

CAMPAIGN_PAUSED = Alarm(
    WARNING,
    "campaign %s has paused itself: %s",
    (
        "Too many refusals, bounces or complaints; or a row of equal refusals; or its first recipients are done; or "
        "its letters need the missing `PUBLIC_URL`"
    ),
    "[Check, then `resume_job` or `stop_job`](../how-to/stop-and-retry.md#a-campaign-that-pauses-itself)",
    "mailhub_campaigns_paused",
)

COMPLAINTS_PAUSED = Alarm(
    WARNING,
    "sponsor %s: bulk mail to %s has paused itself: %s",
    "Too many recipients of this provider called the sponsor's mails of a day spam; all other mail goes on",
    "[Look at the list, then `complaints resume`](../how-to/stop-and-retry.md#too-many-complaints-at-one-provider)",
    "mailhub_complaint_pauses",
)

COMPLAINTS_NEAR_LIMIT = Alarm(
    WARNING,
    "sponsor %s: complaints at %s come near the limit: %s",
    "Providers want fewer than one complaint in a thousand mails; nothing is paused yet",
    "Ask the sponsor who is on the list",
    "mailhub_complaint_warnings",
)

RATES_NOT_JUDGED = Alarm(
    ERROR,
    "the rates of campaign %s cannot be judged",
    "An error in its stored rates; it cannot pause itself. Logged once a process",
    "Read the error; watch the campaign, or `pause_job`",
)

JOB_CANNOT_BE_SENT = Alarm(
    ERROR,
    "job %s cannot be sent",
    "Its template, adapter or settings fail; retried each minute",
    "Read the job's *waits for*",
)

LIST_NOT_CHECKED = Alarm(
    ERROR,
    "the list of draft %s cannot be checked",
    "An unforeseen error; nothing was sent. The owner may retry safely",
    "Report the error",
)

ANSWERS_UNREAD = Alarm(
    WARNING,
    "%s answers of recipients are unread, the oldest for %.0f hours",
    "Nobody has read what recipients wrote; some may ask to stop. Repeated hourly",
    "[Read them](../how-to/answers-to-sms.md#read-them): the page Answers, or `answers list`",
    "mailhub_answers_unread",
)

DRAFT_NOT_SENT = Alarm(
    ERROR,
    "no campaign can be made of draft %s",
    "An unforeseen error; nothing was sent. The owner may retry safely",
    "Report the error",
)

ADAPTER_FAILED = Alarm(
    ERROR,
    "the adapter failed in a call",
    "An adapter raised; the message is in doubt",
    "Mend the adapter",
)

DOUBTS_NOT_SETTLED = Alarm(
    ERROR,
    "doubts of credential %s cannot be settled",
    "Its adapter or settings fail in a look-up; retried",
    "Mend them",
)

REPORTS_NOT_FETCHED = Alarm(
    WARNING,
    "reports of %s cannot be fetched: %s",
    "A vendor's [acknowledgements](../how-to/print.md#acknowledgements) cannot be read; retried every minute",
    "Mend the login or the folder",
)

REPORT_UNREADABLE_IN_FILE = Alarm(
    WARNING,
    "a report fetched from %s: %s",
    "A row or file is unreadable; the rows beside it were taken",
    "Ask the vendor for a new file",
)

PERMITS_NOT_RETURNED = Alarm(
    WARNING,
    "vendor %s: places could not be handed back",
    "Redis was away at the end of a call",
    "Nothing: permits expire",
)

ANSWERS_NOT_COUNTED = Alarm(
    WARNING,
    "job %s: %s good and %s bad answers are not counted",
    "Redis was away at the end of a call",
    "Nothing: permits expire",
)

NO_CHORD = Alarm(
    WARNING,
    "parent %s: its children are notified without a chord: %s",
    "The store of results is away; the last child logged finishes the parent",
    "Restore Redis",
)

RESULT_SERVER_AWAY = Alarm(
    WARNING,
    "result server %s cannot be reached, the rows answer: %s",
    "A server of `RESULT_URLS` is away; the rows answer",
    "Restore it",
)

RESULTS_NOT_WRITTEN = Alarm(
    WARNING,
    "%s cannot be written: %s",
    "A server of `RESULT_URLS` is away; the rows answer",
    "Restore it",
)

WEBHOOK_SUSPENDED = Alarm(
    WARNING,
    "webhook %s is suspended for %.0f s: its receiver does not answer in time",
    "Three calls in a row took over ten seconds; retried later",
    "If it stays, tell its owner",
)

WEBHOOK_OFF = Alarm(
    WARNING,
    "webhook %s is switched off: %s",
    "Its receiver answered 410",
    "Ask its owner, then `webhook enable ID`",
)

NO_PUBLIC_URL = Alarm(
    WARNING,
    "PUBLIC_URL is not set: what this worker sends has no link to unsubscribe",
    "Bulk mail of this worker has no unsubscribe link",
    "Set it [for all processes](../how-to/unsubscribe.md), unless this worker sends no bulk mail",
)

CANNOT_UNSUBSCRIBE = Alarm(
    WARNING,
    "a recipient cannot unsubscribe: %s",
    "The database failed; the page asks to retry, providers repeat one-click requests",
    "Check PostgreSQL",
)

MAIL_NOT_TAKEN = Alarm(
    ERROR,
    "a mail could not be taken and will come again: %s: %s",
    "The bounce receiver could not store a mail and answered 451",
    "If repeated, check PostgreSQL",
)

MAIL_FLAGGED = Alarm(
    ERROR,
    "mail %s of the mailbox could not be stored and is flagged there: %s: %s",
    "A mail in the mailbox of bounces cannot be stored. It is flagged and marked as read; the others go on",
    "Report it with the mail, which is in the mailbox",
)

REFUSALS_NOT_COUNTED = Alarm(
    ERROR,
    "refused addresses could not be counted: %s: %s",
    "The bounce receiver stores these counts later",
    "If repeated, check PostgreSQL",
)

REPORT_FORGED = Alarm(
    WARNING,
    "a report of vendor %s is refused: it has no proof of being the vendor's",
    "Invalid signature: a forger, or a wrong secret. Logged at most once a minute",
    "If reports are missing: `vendor receipts SLUG --secret-file FILE`; check that the vendor calls `PUBLIC_URL`",
)

REPORT_UNREADABLE = Alarm(
    WARNING,
    "a report of vendor %s cannot be read: %s",
    "A signed report of an unknown form; the vendor repeats it. Logged at most once a minute",
    "Tell the adapter's author",
)

HELP_NOT_ANSWERED = Alarm(
    WARNING,
    "HELP to %s is not answered: %s",
    ("The sponsor may not use the vendor, or none of its several credentials is called default; the message is kept"),
    "The sentence says which; `manage.py inbound --does help` lists who asked",
)

REPORTS_NOT_TAKEN = Alarm(
    WARNING,
    "reports of vendor %s cannot be taken as it is set up: %s",
    "The vendor's adapter, settings or description are unusable. Logged at most once a minute",
    "`vendor set`, until it accepts the settings",
)

REPORTS_UNKNOWN = Alarm(
    WARNING,
    "%s reports of %s name no letter that it has accepted",
    "Reports by vendor id matched nothing within a week",
    (
        "Look for another installation with the same login, two accounts in one vendor (make each its own vendor), "
        "or unsettled doubts"
    ),
)

WAITING_REPORT_NOT_TAKEN = Alarm(
    ERROR,
    "a waiting report of %s cannot be taken yet: row %s",
    "An early report cannot be stored; the error follows. Retried for a week, at most hourly",
    "Nothing after a downgrade; else report it",
)

REPORTS_NOT_CONFIRMED = Alarm(
    WARNING,
    "reports of vendor %s could not be confirmed at %s: %s",
    "Amazon SNS wanted its subscription confirmed and did not answer",
    "If reports are missing, *request confirmation* in SNS; check that the web server reaches it",
)

REPORTS_NOT_COUNTED = Alarm(
    WARNING,
    "reports could not be counted: %s",
    "PostgreSQL failed briefly; counted later",
    "Nothing",
)

NO_BEAT_ROW = Alarm(
    ERROR,
    "No row in beat's table for %s: %s",
    "The vendor's time zone or night is unreadable",
    "`vendor set`; meanwhile `dispatch_jobs`",
)

BEAT_TABLE_OUTDATED = Alarm(
    WARNING,
    "Beat's table could not be brought up to date: %s",
    "The database was lost while a vendor was saved; the sweep runs its night",
    "`migrate`, or save the vendor again",
)

FILES_UNCOMPRESSED = Alarm(
    WARNING,
    "The pages' files are served uncompressed: %s",
    "`MAILHUB_HOME/static` is not writable; pages work",
    "Let the user of `web` write there and restart it",
)

QUEUES_NOT_LOOKED_FOR = Alarm(
    WARNING,
    "Cannot look for queues of new vendors: %s",
    "The database was away; the worker looks again",
    "Nothing",
)

QUEUES_NOT_ANNOUNCED = Alarm(
    WARNING,
    "Workers could not be told of new queues and will find them later: %s",
    "The broker was away; workers look every `QUEUE_LOOK_SECONDS`",
    "Nothing",
)

PARKED_TASK_NOT_PUBLISHED = Alarm(
    ERROR,
    "Parked task %s, %s, cannot be published",
    "Its row is unreadable, or the broker refuses it; retried at every release",
    "`waiter` and the error below; cancel it there or in the admin",
)

PUBLISHED_TWICE = Alarm(
    WARNING,
    "%s[%s] was published twice; this is the double, dropped",
    "A release of the waiter was cut off and repeated",
    "Nothing",
)

BEAT_WAITS = Alarm(
    WARNING,
    "beat waits for the database: %s",
    "PostgreSQL is away or refuses, in its own words; nothing due is started",
    "Mend PostgreSQL",
)

BEAT_SENDS_NOTHING = Alarm(
    WARNING,
    "beat cannot reach the broker: %s",
    "The broker is away. Workers run what is late; beat sends each task again when it is due the next time",
    "Restore it",
)

MOVED_WITHOUT_MAIL = Alarm(
    WARNING,
    "%s; nothing waits, so nothing is asked",
    "The rows were written on another disk or machine, and no mail waits",
    "Nothing, if you moved it",
)

DATABASE_AWAY_AT_START = Alarm(
    WARNING,
    "PostgreSQL is asked before anything is called, and is away: %s",
    "A worker or beat starts without PostgreSQL",
    (
        "Restore it; the first session [checks the "
        "installation](../how-to/back-up-and-restore.md#a-copy-a-move-or-days-away)"
    ),
)

MOMENT_AHEAD = Alarm(
    WARNING,
    "a stored moment lay ahead: %s of %s rows, by up to %s; it is corrected",
    "A time lay too far ahead of PostgreSQL's clock and was corrected",
    "Set the clocks (NTP): beat's for `PeriodicTask`, else PostgreSQL's and the workers'",
)

DATABASE_CLOCK_BACK = Alarm(
    WARNING,
    "the clock of PostgreSQL was put back by about %s: waits that it had stored end sooner",
    "Stored waits end that much sooner",
    "Nothing if you did it; else check the clock",
)

BEAT_CLOCK_BACK = Alarm(
    WARNING,
    "beat's clock was put back by %.0f s; its rows are read anew, %s moments lay ahead",
    "beat rereads its rows",
    "Nothing if you did it; else check the clock",
)

MOMENTS_NOT_LOOKED_AT = Alarm(
    WARNING,
    "stored moments could not be looked at: %s",
    "PostgreSQL was away; retried",
    "If repeated, check PostgreSQL",
)

WATCHDOG_NOT_LOOKED = Alarm(
    WARNING,
    "the watchdog could not look: %s",
    "PostgreSQL was away; retried",
    "If repeated, check PostgreSQL",
)

TASK_LATE = Alarm(
    WARNING,
    "%s did not run for %.0f s, and is run by this worker: look at beat and the hub workers",
    "Three intervals passed without beat or a hub worker, so a worker steps in. Logged every ten minutes",
    "Check beat (`/readyz`), the broker and hub workers",
)

WATCHDOG_TASK_FAILED = Alarm(
    ERROR,
    "%s failed in the watchdog",
    "An error in such a task; the traceback follows",
    "As in that task's own log",
)

DOES_NOT_START = Alarm(
    CRITICAL,
    "mailhub does not start: %s",
    "A check failed",
    "As it says",
)

# code: alarm, in the order of the page
ALARMS = {code: alarm for code, alarm in dict(globals()).items() if isinstance(alarm, Alarm)}
RULES = (
    PrometheusRule("MailhubLate", f"{NOT_SENT.metric} > 0", "30s"),
    PrometheusRule("MailhubPart", "mailhub_up == 0 or absent(mailhub_up)", "1m"),
    PrometheusRule("MailhubBeat", "time() - mailhub_beat_sent_timestamp_seconds > 120", "1m"),
    PrometheusRule("MailhubHalted", f"{NOTHING_CALLED.metric} == 1"),
    PrometheusRule("MailhubCampaignPaused", f"{CAMPAIGN_PAUSED.metric} > 0"),
    PrometheusRule("MailhubComplaints", f"{COMPLAINTS_PAUSED.metric} > 0"),
    PrometheusRule("MailhubReceivers", f"{RECEIVER_WAITS_LONG.metric} > 14400"),
    PrometheusRule("MailhubHeld", "mailhub_jobs_held > 0", "4h"),
    PrometheusRule("MailhubPromise", f"{PROMISE_BROKEN.metric} > 0"),
    PrometheusRule("MailhubAudit", "time() - mailhub_audit_timestamp_seconds > 3600", "30m"),
    PrometheusRule("MailhubWorkers", "mailhub_queue_workers == 0", "1m"),
    PrometheusRule("MailhubAnswers", "mailhub_answers_unread_oldest_seconds > 86400"),
    PrometheusRule("MailhubDoubts", "mailhub_messages_in_doubt > 0", "1h"),
)
