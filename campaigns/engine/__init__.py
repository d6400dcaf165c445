"""The engine: casts, claims, sends, settles and finishes. It imports no feature; ports.py says what it asks of them."""
