"""Pages on which recipients, who have no account, unsubscribe and subscribe again."""
