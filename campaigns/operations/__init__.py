"""The feature of jobs under way: what operators look up, stop, pause, retry, settle and approve, at every door.

- actions stops, retries and settles; pausing; approving; answering, after a recovery of the store; verbs: what fits.
- job_commands and following: what commands about jobs share.

Models: models/jobs.py, operations.py, complaints.py, routes.py. Doors: admin/, management/, pages/
(the first page, decisions), mailhub/operations/.
"""
