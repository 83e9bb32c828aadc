"""A process that freezes itself does nothing more, however many threads it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

FROZEN = """
import os, threading, time
from headrace.testing.faults import freeze_here

def be_busy():
    while True:
        time.sleep(0.0001)

for _ in range(20):
    threading.Thread(target=be_busy, daemon=True).start()

def freeze_and_go_on():
    freeze_here()
    os.write(1, b"woken up")

freezing = threading.Thread(target=freeze_and_go_on)
freezing.start()
freezing.join()
os._exit(0)
"""


def test_the_thread_that_freezes_its_process_takes_no_further_step() -> None:
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", FROZEN], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                os.set_blocking(process.stdout.fileno(), False)
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)
                assert process.stdout.read() is None
                process.send_signal(signal.SIGCONT)
                os.set_blocking(process.stdout.fileno(), True)
                assert process.stdout.read() == b"woken up"
            finally:
                process.kill()
