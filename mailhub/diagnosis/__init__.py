"""What is wrong with the installation: its servers, machine and processes. `doctor` runs all checks.

/readyz and the operations page run those that are cheap. The checks at the start (mailhub/checks.py) and the probes
(mailhub/monitoring/probes.py) are among them.
"""
