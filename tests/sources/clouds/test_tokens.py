"""Who we are to Google and Azure."""

import sys

import pytest

from trimtab.errors import UsageError
from trimtab.sources.clouds.clients import AZURE_TOKEN, GCP_TOKEN, azure_headers, google_headers


def test_a_token_of_the_environment_goes_before_any_library(monkeypatch):
    monkeypatch.setenv(GCP_TOKEN, "g")
    monkeypatch.setenv(AZURE_TOKEN, "a")

    assert google_headers() == {"Authorization": "Bearer g"}
    assert azure_headers("scope") == {"Authorization": "Bearer a"}


def test_without_token_and_library_the_error_names_both(monkeypatch):
    monkeypatch.delenv(GCP_TOKEN, raising=False)
    monkeypatch.delenv(AZURE_TOKEN, raising=False)
    for name in ("google.auth", "azure.identity", "azure.core.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(UsageError, match=r"trimtab\[gcp\].*TRIMTAB_GCP_TOKEN"):
        google_headers()
    with pytest.raises(UsageError, match=r"trimtab\[azure\].*TRIMTAB_AZURE_TOKEN"):
        azure_headers("scope")


def test_without_boto3_the_error_names_the_extra(monkeypatch):
    from trimtab.sources.clouds.clients import aws_client

    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(UsageError, match=r"trimtab\[aws\]"):
        aws_client("ec2", "us-east-1")
