"""Vendors with any HTTP API, described in one TOML file instead of an adapter's code (decision 23).

`reading` checks a file and explains each mistake. `bodies` compiles the request, `answers` the rules for answers, and
`adapter` calls the vendor. `shipped/` holds the descriptions that come with mailhub.
"""
