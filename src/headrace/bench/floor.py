"""The floor as a child of the bench: `python -m headrace.bench.floor`."""

from __future__ import annotations

from threading import Event

from headrace._native import serve_floor
from headrace.bench.tether import Tether


def main() -> None:
    tether = Tether()
    tether.send(url=f"grpc://127.0.0.1:{serve_floor()}")
    Event().wait()  # the tether ends the process


if __name__ == "__main__":
    main()
