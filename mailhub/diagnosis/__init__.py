"""Finds faults of the installation: its servers, machine and processes. `doctor` runs all checks.

/readyz and the operations page run the cheap ones. The checks at the start (mailhub/checks.py) and the probes
(mailhub/monitoring/probes.py) are among them.
"""
