"""Compliance suites and scripted LLMs, for our tests and for users' own stores."""
