"""The user's configuration: a TOML file of contexts, each a daemon and how to speak to it.

current = "prod"

[contexts.prod]
server = "tls://steering.example:7443"
"""
