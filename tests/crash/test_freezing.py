"""A process that freezes itself does nothing more, however many threads it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

FROZEN = """
import os, threading, time
from headrace.testing.faults import freeze_here

def be_busy():
    while True:
        time.sleep(0.0001)

for _ in range(20):
    threading.Thread(target=be_busy, daemon=True).start()

def freeze_and_go_on():
    for _ in range(5):
        freeze_here()
        os.write(1, b"woken up\\n")

freezing = threading.Thread(target=freeze_and_go_on)
freezing.start()
freezing.join()
os._exit(0)
"""


@pytest.mark.processes
def test_the_thread_that_freezes_its_process_takes_no_further_step() -> None:
    with subprocess.Popen([sys.executable, "-c", FROZEN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for _ in range(5):
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)
                os.set_blocking(process.stdout.fileno(), False)
                assert process.stdout.read() is None
                process.send_signal(signal.SIGCONT)
                os.set_blocking(process.stdout.fileno(), True)
                assert process.stdout.readline() == b"woken up\n"
        finally:
            process.kill()
