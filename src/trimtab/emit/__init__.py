"""Turns audits and plans into documents, reports and manifests."""
