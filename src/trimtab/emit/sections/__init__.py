"""Builds reports as sections. Writers that know nothing about audits turn them into text, Markdown and HTML."""
