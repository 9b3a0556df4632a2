# SPDX-License-Identifier: BSD-2-Clause
"""Programs over UCX, and whether uroce has carried what they say that they moved: the engine counts its packets. Used by the
test files about applications."""

import re

from suite import check

COUNTED = {"UROCE_COUNTERS": "1"}


def packets_sent(output):
    """Of every engine that told its counters, one per process and device."""
    return [int(number) for number in re.findall(r"^roce0: packets sent: (\d+)", output, re.MULTILINE)]


def check_carried(output, packets, what):
    """An engine has sent at least so many packets."""
    check(max(packets_sent(output), default=0) >= packets, f"{what}: uroce has not sent {packets} packets\n{output}")


def ucx_environment(host, transport, gid=None):
    """Settings of UCX: this transport on uroce's device, and nothing else. gid: index; None: UCX chooses."""
    settings = {} if gid is None else {"UCX_IB_GID_INDEX": str(gid)}
    return {
        **settings,
        # UCX connects RC over UD ("auxiliary"), which its own name for the pair says.
        "UCX_TLS": "rc_v,self" if transport == "rc_verbs" else f"{transport},self",
        "UCX_NET_DEVICES": f"{host.device}:1",
        "UCX_LOG_LEVEL": "warn",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
