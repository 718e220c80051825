"""How a network address is counted where strangers connect: by the network that one household or one server has."""

from __future__ import annotations

import functools
import ipaddress


@functools.lru_cache(maxsize=4096)
def address_of(host: str) -> str:
    """`host` as it is counted: an IPv6 network of 64 bits is one address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
