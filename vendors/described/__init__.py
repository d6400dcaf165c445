"""Any HTTP vendor by a description: one TOML file instead of an adapter's code (decision 23).

`reading` checks a file and explains every mistake, `bodies` compiles its request, `answers` its answers, `adapter`
calls the vendor. `shipped/` has the descriptions that come with mailhub.
"""
