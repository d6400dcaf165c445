"""What all doors share (admin, owners' pages, commands, API): words for states, ids, keys, filters.

It knows who may use what (campaigns/senders), and no other feature.

- labels: the state of a message, job or campaign in words; owner_phrases: the same for owners.
- filters: jobs by status and date (document 000). admin_base: admin pages of a sponsor's rows.
- sponsors: sponsors and their options in commands.
- public_ids: the ids of rows that programs see; token_keys: the keys of tokens that leave with a letter and come back.
"""
