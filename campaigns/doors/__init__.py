"""What all doors share (admin, owners' pages, commands, API): the words for states, ids and keys. It knows no feature.

- labels: the state of a message, job or campaign in words.
- public_ids: the ids of rows that programs see.
- token_keys: the keys of tokens that leave with a letter and come back.
"""
