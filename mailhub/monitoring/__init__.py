"""Monitoring of the machines: /livez, /readyz and /metrics, at both ports (docs/how-to/watch.md)."""
