"""The Python clients of the RFC, which know nothing of ours, against a real server.

They are taken from its text. Changed is only what no pyarrow can run: an acknowledgement's rows are in
`chunk.data`, `_next_lsn` is defined nowhere, and the first example says that it is done only after a loop
that ends when the server does, which cannot know before.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.model.tiers import Tier
from tests.ingest.support import FakeIceberg, running_server

RFC = Path(__file__).parent / "rfc_examples"


@pytest.fixture
def port(tmp_path: Path, iceberg: FakeIceberg) -> Iterator[int]:
    with running_server(tmp_path) as server:
        yield server.port


def example(name: str, port: int) -> str:
    text = (RFC / name).read_text()
    return re.sub(r"\b8815\b", str(port), text).replace("ack_batch.to_pandas()", "ack_batch.data.to_pandas()")


def test_the_first_example_hears_of_every_tier(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = example("first_example.py.txt", port)
    done = "writer.done_writing()\n"
    assert text.endswith(done)
    text = text.removesuffix(done).replace(
        "writer.write_batch(batch)\n", f"writer.write_batch(batch)\n{done}"
    )
    cleaned: list[int] = []
    exec(text, {"df": pa.table({"id": [1, 2]}).to_pandas(), "cleanup_local_cache": cleaned.append})
    assert cleaned == [1]
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"LSN 1 reached {tier.name}" for tier in Tier if tier is not Tier.MEMORY]


def test_appendix_a_is_told_of_a_thousand_writes(
    port: int, iceberg: FakeIceberg, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks to be called back only after it has written, and must not be too late for the last tier."""
    iceberg.hold()
    text = example("appendix_a.py.txt", port)
    assert text.count("\nclient.close()\n") == 1
    text = text.replace("\nclient.close()\n", "\nlet_go()\nclient.close()\n")
    counted = """
        def _next_lsn(self):
            self.last_lsn = getattr(self, 'last_lsn', 0) + 1
            return self.last_lsn

        def close(self):
    """
    text = text.replace(
        "    def close(self):\n", textwrap.indent(textwrap.dedent(counted).strip(), "    ") + "\n"
    )
    names: dict[str, Any] = {"let_go": iceberg.let_go}
    exec(text, names)
    client = names["client"]
    assert not client.ack_thread.is_alive()
    assert client.pending_writes == dict.fromkeys(range(1, 1001), "COMMITTED")
    assert client.callbacks == {}
    assert capsys.readouterr().out.count("safe on S3!") == 1000
