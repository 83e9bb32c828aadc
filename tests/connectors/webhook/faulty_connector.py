"""`headrace connector webhook`, killed at a step: `faulty_connector STEP OCCURRENCE webhook --grpc ADDRESS`.

A step is one of `headrace.testing.faults`, or `posting` or `posted`, around each request to the receiver.
"""

from __future__ import annotations

import sys
import threading

from headrace.connectors.webhook import WebhookConnector
from headrace.connectors.webhook.batches import Batch
from headrace.connectors.webhook.client import WebhookClient
from headrace.protocol.grpc import GrpcServer
from headrace.testing import Observed, kill_at


def main() -> None:
    step, occurrence, _, _, address = sys.argv[1:]
    observer = kill_at(step, int(occurrence))
    post = WebhookClient.post

    def post_and_tell(self: WebhookClient, batch: Batch) -> None:
        observer("posting")
        post(self, batch)
        observer("posted")

    WebhookClient.post = post_and_tell  # type: ignore[method-assign]
    with GrpcServer(Observed(WebhookConnector(), observer), address) as server:
        print(f"listens on 127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()
