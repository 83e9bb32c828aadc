"""Imported by every Python process that makes fixtures, so that none of them reveals where it runs."""

from __future__ import annotations

import socket

socket.gethostname = lambda: "maker.example"
