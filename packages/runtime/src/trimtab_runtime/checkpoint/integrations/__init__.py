"""Thin adapters to training frameworks, none of which is imported before an adapter is made."""
