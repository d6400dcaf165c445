"""Pages for recipients, who have no login: on them they unsubscribe, and subscribe again."""
