"""Addresses as limits count them."""

import functools
import ipaddress


@functools.lru_cache(maxsize=4096)
def address_of(host: str) -> str:
    """The address that limits count `host` as: for IPv6 its network of 64 bits, which a household or server has."""
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
