"""A connection to a cluster through lightkube: kubeconfig contexts, in-cluster accounts, exec plugins, certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trimtab.errors import CredentialsError, InputError, SourceError
from trimtab.sources.kube_api import Answer, KubeApi, Unanswered

TIMEOUT_S = 30.0


@contextmanager
def cluster_api(
    context: str | None = None, kubeconfig: Path | None = None, *, timeout_s: float = TIMEOUT_S
) -> Iterator[KubeApi]:
    """Open the cluster that a context names (default: the current one, or the pod's own account inside a cluster).

    Raises InputError where lightkube is not installed or the kubeconfig cannot be used.
    """
    try:
        from lightkube.config import client_adapter
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.config.models import User
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        raise InputError(
            "reading a live cluster needs lightkube: pip install 'trimtab[kubernetes]'; "
            "or read a dump: kubectl get nodes,pods,... -A -o json > dump.json and --kube-dump dump.json"
        ) from error
    http = vars(client_adapter)["httpx"]
    try:
        config = (KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()).get(context)
        if config is None:
            raise ConfigError("no context")
        usable = config if config.user else config._replace(user=User())
        client = client_adapter.Client(usable, client_adapter.ConnectionParams(timeout=http.Timeout(timeout_s)))
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        named = f"context {context!r} of " if context else ""
        raise InputError(
            f"cannot use {named}{kubeconfig or 'the kubeconfig'}: {error}; see: kubectl config get-contexts"
        ) from error
    with client:
        yield KubeApi(
            carrier=_Lightkube(
                get_=client.get,
                timeout=http.TimeoutException,
                transport=http.TransportError,
                other=http.HTTPError,
                credentials=ConfigError,
            ),
            server=str(config.cluster.server),
        )


class _Response(Protocol):
    @property
    def status_code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lightkube:
    """Carries requests over lightkube's client; maps every error of it (the classes are those of the httpx it brought)."""

    get_: Callable[..., _Response]
    timeout: type[Exception]
    transport: type[Exception]
    other: type[Exception]
    credentials: type[Exception]

    def get(self, path: str, parameters: Mapping[str, str]) -> Answer:
        """Return the answer to a GET; raises Unanswered, CredentialsError or SourceError."""
        try:
            answer = self.get_(path, params=dict(parameters))
        except self.timeout as error:
            raise Unanswered(f"no answer in time ({type(error).__name__})") from error
        except self.transport as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
        except self.other as error:
            raise SourceError(f"{path}: {error}") from error
        except self.credentials as error:
            raise CredentialsError(f"the credentials of the kubeconfig do not work: {error}") from error
        return Answer(status=answer.status_code, body=answer.text, retry_after=answer.headers.get("Retry-After", ""))
