"""Congestion control by name: what an endpoint makes for each destination."""

from __future__ import annotations

from collections.abc import Callable

from testbed.transport.mrc.config import EndpointConfig
from testbed.transport.mrc.nscc import NsccParameters, NsccWindow
from testbed.transport.mrc.window import FixedWindow, NoWindow, Window


def _nscc(config: EndpointConfig) -> Window:
    if config.bdp_bytes <= 0:
        raise ValueError("NSCC needs the bandwidth-delay product")
    parameters = NsccParameters.derive(
        mtu=config.payload, base_rtt_ns=config.rtt_base_ns, bdp=config.bdp_bytes, max_window=config.window_bytes
    )
    return NsccWindow(parameters)


def _fixed(config: EndpointConfig) -> Window:
    return FixedWindow(config.window_bytes, config.payload)


def _none(config: EndpointConfig) -> Window:
    return NoWindow(config.payload)


CONTROLLERS: dict[str, Callable[[EndpointConfig], Window]] = {"nscc": _nscc, "fixed": _fixed, "none": _none}
