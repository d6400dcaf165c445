"""The feature of who may send, as whom, how much: vendors of a sponsor, its sender identities, its quotas.

- entitlements: which sponsor may use which vendor, credential, identity and class.
- quotas: how much a sponsor may send.
- deliverability: whether the DNS lets an identity's mail arrive.

Models: models/identities.py, sharing.py, quotas.py. Doors: admin/identities.py, sharing.py and quotas.py, the commands
identity, topic, entitlement, quota and weight, mailhub/owners/identities.py, `doctor`.
"""
