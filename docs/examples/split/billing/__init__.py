"""Billing, in two roles: workers that run its jobs, and an API that tells of them."""
