"""Posts requests to a receiver, and evaluates its responses."""

from __future__ import annotations

import gzip
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType

import urllib3
from urllib3 import exceptions

from headrace import __version__
from headrace.connectors.webhook.batches import Batch
from headrace.connectors.webhook.config import WebhookEndpoint
from headrace.connectors.webhook.proxies import pool_manager
from headrace.connectors.webhook.quiet import unlogged
from headrace.connectors.webhook.retries import Retries, TryAgain, parse_retry_after
from headrace.connectors.webhook.secrets import Secrets, basic_token
from headrace.errors import ConfigError, EndpointError

# 409 is what a receiver answers, by the draft of the header Idempotency-Key, while it still works on an
# earlier request with the same key: one that timed out, or whose sender has crashed.
_PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
# The rest of a longer response is not read, and its connection is not reused.
_MOST_ANSWER_BYTES = 64 * 1024
_MOST_SHOWN_CHARACTERS = 300


class _TooSlow(exceptions.HTTPError):
    """Raised for a response that arrives in small parts, each of them in time."""


class WebhookClient:
    """Connections to one receiver, for as many threads as the endpoint allows concurrent requests."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        self._endpoint = endpoint
        self._address = endpoint.target
        self._secrets = Secrets(endpoint)
        self._retries = Retries(endpoint.retry_for)
        self._headers = _headers(endpoint)
        self._manager = pool_manager(
            self._address,
            maxsize=endpoint.concurrency,
            timeout=urllib3.Timeout(connect=endpoint.timeout, read=endpoint.timeout),
            retries=False,
            ssl_context=_tls(endpoint),
        )

    def post(self, batch: Batch) -> None:
        """Returns once the receiver has accepted the batch."""
        body = gzip.compress(batch.body, compresslevel=6, mtime=0) if self._endpoint.gzip else batch.body
        headers = self._headers.copy()
        headers["Idempotency-Key"] = batch.idempotency_key
        self._retries.run(lambda: self._attempt(batch.path, body, headers))

    def _attempt(self, path: str, body: bytes, headers: urllib3.HTTPHeaderDict) -> None:
        with self._failures(path), unlogged():
            deadline = time.monotonic() + self._endpoint.timeout
            response = self._manager.request(
                "POST",
                self._address.url(path),
                body=body,
                headers=headers,
                preload_content=False,
                decode_content=False,
                redirect=False,
            )
            answer = _read(response, deadline)
        self._judge(path, response, answer)

    def _judge(self, path: str, response: urllib3.BaseHTTPResponse, answer: bytes) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        said = f"{self._name(path)} answers {_status_name(status)}"
        if 300 <= status < 400:
            raise EndpointError(
                f"{said}, and a POST is not sent on to where that leads: put the final URL into 'address'"
            )
        if excerpt := self._excerpt(answer):
            said = f"{said}: {excerpt}"
        if status in _PASSING or status >= 500:
            raise TryAgain(said, parse_retry_after(response.headers.get("Retry-After")))
        raise EndpointError(said)

    def _excerpt(self, answer: bytes) -> str:
        """Returns the beginning of a response in one line, without secrets that it repeats."""
        text = answer.decode(errors="replace")
        if len(answer) >= _MOST_ANSWER_BYTES:
            text = text[: -self._secrets.longest or None]  # where one may be cut off, and not be known
        line = " ".join(self._secrets.mask(text).split())
        return line if len(line) <= _MOST_SHOWN_CHARACTERS else line[: _MOST_SHOWN_CHARACTERS - 3] + "..."

    @contextmanager
    def _failures(self, path: str) -> Iterator[None]:
        """Translates failures of a request: one without a response is retried, unless its certificate is not
        trusted."""
        try:
            yield
        except exceptions.SSLError as error:
            cause = error.args[0] if error.args else None
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise EndpointError(
                    f"the certificate of {self._name(path)} is not trusted: {cause.verify_message}; "
                    "a private authority is named by 'authorities_file'"
                ) from error
            raise TryAgain(f"{self._name(path)} cannot be reached by TLS: {_reason(cause)}") from error
        except exceptions.LocationValueError:
            raise ConfigError("endpoint: key 'address': what it has for a host is no host's name") from None
        except exceptions.HTTPError as error:
            raise TryAgain(f"{self._name(path)} {self._said(error)}") from error

    def _said(self, error: exceptions.HTTPError) -> str:
        match error:
            case exceptions.NameResolutionError():
                return "cannot be reached: nobody knows its host name"
            case exceptions.NewConnectionError():
                return f"cannot be reached: {str(error).rpartition('] ')[2]}"
            case exceptions.ConnectTimeoutError():
                return f"cannot be reached within the {self._endpoint.timeout:g} s of 'timeout'"
            case exceptions.ReadTimeoutError() | _TooSlow():
                return f"gives no answer within the {self._endpoint.timeout:g} s of 'timeout'"
            case exceptions.ProxyError():
                return "cannot be reached by the proxy that the environment names"
            case _:
                return "broke the connection off before its answer was whole"

    def _name(self, path: str) -> str:
        return f"webhook {self._address.origin}, resource {path!r},"

    def __enter__(self) -> WebhookClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._manager.clear()


def _headers(endpoint: WebhookEndpoint) -> urllib3.HTTPHeaderDict:
    headers = urllib3.HTTPHeaderDict({"User-Agent": f"headrace/{__version__}"})
    for name, value in endpoint.headers.items():
        headers[name] = value.get_secret_value()
    headers["Content-Type"] = "application/json"
    if endpoint.gzip:
        headers["Content-Encoding"] = "gzip"
    if token := endpoint.bearer_token:
        headers["Authorization"] = f"Bearer {token}"
    if credentials := endpoint.target.credentials:
        headers["Authorization"] = f"Basic {basic_token(credentials)}"
    return headers


def _tls(endpoint: WebhookEndpoint) -> ssl.SSLContext | None:
    if endpoint.target.scheme != "https":
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.authorities_file)
    except OSError as error:
        raise ConfigError(
            f"endpoint: key 'authorities_file': {endpoint.authorities_file} cannot be read as certificates: "
            f"{_reason(error)}"
        ) from error


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """Reads a response completely, since it is not valid before its end, or up to the limit."""
    answer = b""
    try:
        while len(answer) < _MOST_ANSWER_BYTES:
            if not (part := response.read1(_MOST_ANSWER_BYTES - len(answer))):
                response.release_conn()
                break
            answer += part
            if time.monotonic() > deadline:
                raise _TooSlow
    finally:
        response.close()  # and its connection with it, unless that was released
    return answer


def _status_name(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(error: object) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "no such certificates").replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or type(error).__name__)
