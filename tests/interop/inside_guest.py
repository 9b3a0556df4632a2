# SPDX-License-Identifier: BSD-2-Clause
"""uroce inside the virtual machine, on its older kernel and its virtio NICs: against uroce on the host, against rxe in the same
guest, and over VLANs, which the kernels of test machines do not always have.
"""

import cases as common
from cases import captured
from suite import Case, check

PROGRAMS = ("ib_write_bw", "ib_send_lat")
# Of the short form: each pairing, packet I/O and direction once.
QUICK = {"guest-uroce/rc_transfer-udp-to-peer", "guest-rxe/rc_transfer-af_xdp-from-peer"}
VERBS_TEST = ["verbs_client_test", "--gtest_filter=NameService.*:*Vlan*"]


def with_host(make, what, way, arguments, direction, io):
    """uroce here and uroce there, in the place of rxe."""
    name = f"guest-uroce/{(*what, 'rc_transfer')[0]}-{way}-{direction}"
    case = make(*what, way, arguments, direction=direction, io=io, hosts=lambda lab: (lab.a, lab.uroce_guest), name=name,
                quick=name in QUICK)

    def run(lab):
        lab.revive()
        with lab.without_rxe():
            return case.run(lab)

    return Case(case.name, run, quick=case.quick)


def with_rxe(make, what, way, arguments, direction, io):
    """Both in the guest, on a wire inside of it."""
    name = f"guest-rxe/{(*what, 'rc_transfer')[0]}-{way}-{direction}"
    return make(*what, way, arguments, direction=direction, io=io, hosts=lambda lab: lab.join_inside(), name=name, quick=name in QUICK)


def vlans():
    """The verbs tests about VLAN netdevs, which skip where there is no 8021q."""

    def run(lab):
        with captured(lab, "guest-vlans"), lab.without_rxe():
            program = lab.uroce_guest.start(VERBS_TEST, uroce=False, env={"LD_PRELOAD": "/opt/uroce/lib/uroce/liburoce.so", "UROCE_IO": "udp", "UROCE_QUIET": "1"})
            code = program.wait(180)
            check(code == 0 and "SKIPPED" not in program.output, f"exit code {code} (None: hangs)\n{program.output}")
            passed = [line for line in program.output.splitlines() if "PASSED" in line][-1]  # the others are of its own children
            check("3 tests" in passed, program.output)
        return passed.split("]")[1].strip()

    return Case("guest-vlans", run)


def cases():
    for direction in common.DIRECTIONS:
        for io in ("af_xdp", "udp"):
            for pairing in (with_host, with_rxe):
                yield pairing(common.transfer, (), io, ["--messages", 200], direction, io)
                for program in PROGRAMS:
                    yield pairing(common.pair, (program,), io, ["-n", "200"], direction, io)
    yield vlans()
