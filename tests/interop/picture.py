# SPDX-License-Identifier: BSD-2-Clause
"""Draws what uroce has captured around a step of migration.py as an SVG: packets of one connection by time and PSN."""

import struct

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 420, 70, 60, 50
REQUESTS = set(range(0x0D)) | {0x13, 0x14, 0x16, 0x17}  # RC opcodes; READ responses and acknowledgements are the others
STYLE = {"sent": "#1f6feb", "again": "#d1242f", "answer": "#1a7f37"}
TEXT = {"sent": "requests of the peer", "again": "sent again by the peer", "answer": "answers of the guest"}


def read(capture, peer, guest):
    """[(seconds, from the peer?, opcode, destination QP, PSN)] of RC packets between two IPv4 addresses."""
    ends = [bytes(map(int, address.split("."))) for address in (peer, guest)]
    data, at, packets = memoryview(capture.read_bytes()), 0, []
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or at + length > len(data):
            break
        if kind == 6 and length >= 32 + 54:  # an enhanced packet block; Ethernet, IPv4 without options, UDP, BTH
            high, low = struct.unpack_from("<II", data, at + 12)
            frame = data[at + 28 :]
            source, target = bytes(frame[26:30]), bytes(frame[30:34])
            if {source, target} == set(ends):
                word = [int.from_bytes(frame[i : i + 3], "big") for i in (47, 51)]
                packets.append(((high << 32 | low) / 1e9, source == ends[0], frame[42], *word))
        at += length
    return packets


def draw(capture, peer, guest, began, seconds):
    """The SVG's text: `seconds` from a little before `began` on. The connection whose requests were repeated most."""
    window = [p for p in read(capture, peer, guest) if began - 0.05 <= p[0] <= began + seconds]
    sent = [p for p in window if p[1] and p[2] in REQUESTS]
    by_qp = {qpn: [p for p in sent if p[3] == qpn] for qpn in {p[3] for p in sent}}
    chosen = max(by_qp.values(), key=lambda packets: len(packets) - len({p[4] for p in packets}))
    seen, dots = set(), []
    low, high = min(p[4] for p in chosen), max(p[4] for p in chosen)
    for at, _, _, _, psn in chosen:
        dots.append((at, psn, "again" if psn in seen else "sent"))
        seen.add(psn)
    dots += [(p[0], p[4], "answer") for p in window if not p[1] and p[2] not in REQUESTS and low <= p[4] <= high]
    start = window[0][0]
    x = lambda t: LEFT + (WIDTH - LEFT - 20) * (t - start) / (window[-1][0] - start)
    y = lambda psn: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (psn - low) / max(high - low, 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 20}" stroke="#57606a" fill="none"/>']  # fmt: skip
    for tick in range(int((window[-1][0] - start) / 0.25) + 1):
        out.append(f'<text x="{x(start + tick * 0.25):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick * 0.25:g}</text>')
    out.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 10}" text-anchor="middle">seconds</text>')
    out.append(f'<text x="12" y="{HEIGHT // 2}">PSN</text>')
    for i, kind in enumerate(STYLE):
        out.append(f'<circle cx="{LEFT + 10 + 250 * i}" cy="28" r="4" fill="{STYLE[kind]}"/><text x="{LEFT + 20 + 250 * i}" y="33">{TEXT[kind]}</text>')
    drawn = sorted({(round(x(t)), round(y(psn)), kind) for t, psn, kind in dots}, key=lambda dot: dot[2] == "again")
    out += [f'<circle cx="{cx}" cy="{cy}" r="{3.5 if kind == "again" else 2}" fill="{STYLE[kind]}"/>' for cx, cy, kind in drawn]
    return "\n".join([*out, "</svg>", ""])
