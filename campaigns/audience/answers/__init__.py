"""Recipients' answers: SMS to our numbers, replies to mails, reports of fraud.

- judgement decides whether a text asks to stop (phrases.toml), after quoted parts and signatures are cut.
- inbox keeps what no rule is sure of until a person has read it.
"""
