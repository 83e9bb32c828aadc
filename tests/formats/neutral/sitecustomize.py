"""Every Python process that makes fixtures imports this at its start: none tells where it runs."""

from __future__ import annotations

import socket

socket.gethostname = lambda: "maker.example"
