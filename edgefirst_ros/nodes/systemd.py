# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd: ready, status, watchdog. Source: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket


class ServiceManager:
    """The service manager that started this process; without one nothing is sent."""

    def __init__(self) -> None:
        place = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{place[1:]}" if place.startswith("@") else place
        limit = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watched = limit.isdecimal() and ours

    def tell(self, *lines: str) -> None:
        """Send lines such as READY=1."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)

    def alive(self) -> None:
        """Send WATCHDOG=1, if the watchdog is enabled."""
        if self._watched:
            self.tell("WATCHDOG=1")
