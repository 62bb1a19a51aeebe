"""Who we are to Google and Azure: a token from the environment, else from their own libraries, which are extras."""

from __future__ import annotations

import os

from trimtab.errors import CredentialsError, UsageError

GCP_TOKEN = "TRIMTAB_GCP_TOKEN"
AZURE_TOKEN = "TRIMTAB_AZURE_TOKEN"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform.read-only"


def google_headers() -> dict[str, str]:
    """Return what lets us in to Google Cloud. Raises UsageError without google-auth, CredentialsError where it has none."""
    token = os.environ.get(GCP_TOKEN)
    return {"Authorization": f"Bearer {token or _google_token()}"}


def azure_headers(scope: str) -> dict[str, str]:
    """Return what lets us in to an Azure service. Raises UsageError without azure-identity, CredentialsError likewise."""
    token = os.environ.get(AZURE_TOKEN)
    return {"Authorization": f"Bearer {token or _azure_token(scope)}"}


def _google_token() -> str:
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError as error:
        raise UsageError(
            f"this needs google-auth: pip install 'trimtab[gcp]', or {GCP_TOKEN}=$(gcloud auth print-access-token)"
        ) from error
    try:
        credentials, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
        credentials.refresh(google.auth.transport.requests.Request())  # type: ignore[no-untyped-call, unused-ignore]  # google-auth has no types here
    except google.auth.exceptions.GoogleAuthError as error:
        raise CredentialsError(f"Google Cloud: {error}; gcloud auth application-default login") from error
    return str(credentials.token)


def _azure_token(scope: str) -> str:
    try:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise UsageError(
            f"this needs azure-identity: pip install 'trimtab[azure]', or {AZURE_TOKEN}=$(az account get-access-token "
            "--query accessToken -o tsv --resource ADDRESS)"
        ) from error
    try:
        return str(DefaultAzureCredential().get_token(scope).token)
    except ClientAuthenticationError as error:
        raise CredentialsError(f"Azure: {error.message}; az login") from error
