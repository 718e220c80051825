"""Hosts in network namespaces, joined by wires that are slow, lose packets and can be cut. Needs root and /dev/net/tun.

    with Wires({"a": "10.77.7.10", "b": "10.77.7.11"}, delay=0.1, loss=0.05) as wires:
        subprocess.Popen([*inside("a"), "shoal", "relay", "--listen", "tcp/10.77.7.10:7447"])
        wires.cut({"a": "here", "b": "there"})      # packets between different sides vanish
        wires.cut({})                               # healed

As `tc qdisc add ... netem delay 100ms loss 5%` on every host, for kernels without netem: each host has a TUN device,
whose packets a process of its own passes on after `delay` seconds, or loses. The TCP that copes is the kernel's.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import select
import socket
import struct
import subprocess
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Self

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET = 65_536


def inside(host: str) -> list[str]:
    """What stands before a command that is to run on `host`."""
    return ["ip", "netns", "exec", f"shoal-{host}"]


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


class Wires:
    """The hosts, by name with their addresses in one /24, and the process that carries their packets."""

    def __init__(self, hosts: dict[str, str], delay: float, loss: float) -> None:
        self.hosts, self.delay, self.loss = hosts, delay, loss

    def __enter__(self) -> Self:
        self._remove()
        tuns = {}
        for number, (host, address) in enumerate(self.hosts.items()):
            space, device = f"shoal-{host}", f"shoalt{number}"
            tuns[address] = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tuns[address], TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            ip("netns", "add", space)
            ip("link", "set", device, "netns", space)
            ip("-n", space, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", space, "link", "set", device, "up")
            ip("-n", space, "link", "set", "lo", "up")
        self._orders, orders = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._carrier = context.Process(target=carry, args=(tuns, orders, self.delay, self.loss), daemon=True)
        self._carrier.start()
        for tun in tuns.values():
            os.close(tun)
        return self

    def cut(self, sides: dict[str, str]) -> None:
        """Hosts of different sides hear nothing of each other from now on; those not named are on one side."""
        self._orders.send_bytes(json.dumps({self.hosts[host]: side for host, side in sides.items()}).encode())

    def __exit__(self, *_: object) -> None:
        self._carrier.terminate()
        self._carrier.join()
        self._remove()

    def _remove(self) -> None:
        for host in self.hosts:
            ip("netns", "del", f"shoal-{host}", check=False)


def carry(tuns: dict[str, int], orders: Connection, delay: float, loss: float) -> None:
    """Passes packets on, each `delay` seconds after it came, unless it is lost or cut off."""
    sides: dict[str, str] = {}
    waiting: deque[tuple[float, int, bytes]] = deque()
    source_of = {tun: address for address, tun in tuns.items()}
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
        ready, _, _ = select.select([*source_of, orders], [], [], timeout)
        now = time.monotonic()
        for one in ready:
            if one is orders:
                sides = json.loads(orders.recv_bytes())
                continue
            packet = os.read(one, PACKET)
            if packet[0] >> 4 != 4:
                continue
            source, target = source_of[one], socket.inet_ntoa(packet[16:20])
            if target in tuns and sides.get(source) == sides.get(target) and random.random() >= loss:
                waiting.append((now + delay, tuns[target], packet))
        while waiting and waiting[0][0] <= now:
            _, tun, packet = waiting.popleft()
            try:
                os.write(tun, packet)
            except BlockingIOError:  # a host that does not keep up loses packets as well
                continue
