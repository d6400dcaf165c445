"""What tells whoever watches many machines: /livez, /readyz and /metrics, at both ports (docs/how-to/watch.md)."""
