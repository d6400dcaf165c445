"""The feature of permissions to send: vendors of a sponsor, its sender identities, its quotas.

- entitlements: which sponsor may use which vendor, credential, identity and class.
- quotas: how much a sponsor may send.
- deliverability: checks that the DNS lets an identity's mail arrive.
- sender_changes: adds, changes and signs identities; renames and archives topics.

Models: models/identities.py, sharing.py, quotas.py. Doors: admin/, api/, management/,
pages.py, `doctor`.
"""
