"""How limits count the addresses of strangers: the IPv6 network of a household or server counts as one address."""

from __future__ import annotations

import functools
import ipaddress


@functools.lru_cache(maxsize=4096)
def address_of(host: str) -> str:
    """The address that `host` counts as: for IPv6, its network of 64 bits."""
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
