"""Clients of the clouds' own libraries and tokens of theirs: extras, imported when asked for, their errors made ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Protocol, TypeVar

from pydantic import BaseModel, Field, ValidationError

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.sources.http import WebServer

_REFUSED = ("AccessDenied", "UnauthorizedOperation", "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch",
            "UnrecognizedClientException", "AuthFailure", "OptInRequired")  # fmt: skip
_TRIES = 8
"""Tries of a call that AWS throttles, with growing waits between them."""


class AwsPages(Protocol):
    """The pages of one operation."""

    def paginate(self, **asked: object) -> Iterable[Mapping[str, object]]:
        """Return the pages one after another."""


class AwsClient(Protocol):
    """What is used of a boto3 client."""

    def get_paginator(self, operation_name: str) -> AwsPages:
        """Return what pages an operation."""


def aws_client(service: str, region: str, endpoint: str | None = None, *, tries: int = _TRIES) -> AwsClient:
    """Return a client of an AWS service with the caller's usual credentials. Raises UsageError without boto3.

    `tries` is how often a question is put in all, with growing waits in between.
    """
    try:
        import boto3
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UsageError("this needs boto3: pip install 'trimtab[aws]'") from error
    core = botocore.session.Session()
    core.register_component("data_loader", _service_models(core.get_config_variable("data_path")))
    # Making moments of time stamps is most of botocore's work on a long answer; callers read them as AWS sent them.
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_as_sent)
    try:
        client: AwsClient = boto3.Session(botocore_session=core).client(
            service,
            region_name=region,
            endpoint_url=endpoint,
            config=Config(retries={"mode": "standard", "total_max_attempts": tries}),
        )
    except (BotoCoreError, ValueError) as error:
        raise SourceError(f"cannot reach {service} in {region}: {error}") from error
    return client


@cache
def _service_models(data_path: str | None) -> object:
    """Return a loader of AWS's service models. It keeps what it parsed: EC2's model takes 0.2 s, for each region without it."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _as_sent(value: object) -> object:
    return value


def aws_items(client: AwsClient, operation: str, key: str, **asked: object) -> Iterator[object]:
    """Yield the entries under a key of every page of an operation. Raises SourceError, CredentialsError."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
    from botocore.parsers import ResponseParserError

    try:
        for page in client.get_paginator(operation).paginate(**asked):
            entries = page.get(key) if isinstance(page, Mapping) else None
            yield from entries if isinstance(entries, list) else ()
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CredentialsError(f"{operation}: {error}; set AWS_PROFILE, or the usual AWS variables") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        refused = code.startswith(_REFUSED)
        raise (CredentialsError if refused else SourceError)(f"{operation}: {error}") from error
    except (BotoCoreError, ResponseParserError) as error:
        raise SourceError(f"{operation}: {error}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # what botocore's own parser says of an answer whose parts are of other kinds than the service's model has
        raise SourceError(f"{operation}: no answer of this service ({error}); is the address another's?") from error


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


class GooglePage(BaseModel):
    """A page of any list of Google's."""

    next_token: str = Field("", alias="nextPageToken")


_Page = TypeVar("_Page", bound=GooglePage)


def google_pages(
    server: WebServer, path: str, asked: Mapping[str, str], kind: type[_Page], what: str
) -> Iterator[_Page]:
    """Yield the pages of a list. Raises SourceError, which says of `what` it is, also where a page comes a second time."""
    token, seen = "", set[str]()
    while True:
        try:
            page = kind.model_validate_json(server.get(path, {**asked, "pageToken": token} if token else asked))
        except ValidationError as error:
            raise SourceError(f"{server.url}{path}: no page of {what}: {error.errors()[0]['msg']}") from error
        yield page
        token = page.next_token
        if not token:
            return
        if token in seen:
            raise SourceError(f"{server.url}{path}: pages of {what} do not end (token {token} again)")
        seen.add(token)
