"""Webhooks: what an ended job owes its client, how it is signed, and when it is tried again.

Source: Standard Webhooks 1.0.0.
"""
