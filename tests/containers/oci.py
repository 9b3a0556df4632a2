# SPDX-License-Identifier: BSD-2-Clause
"""Containers as Docker makes them, by an OCI runtime (crun) on the hosts of a Lab: namespaces, Docker's default capabilities,
Docker's default seccomp profile, and a file system in which uroce's packages' files are installed. See lab.py."""

import json
import os
import subprocess
from pathlib import Path

from suite import check

# As tools/deps unpacks it.
PROFILE = Path("/var/cache/uroce/docker/usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json")
DEFAULT_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE",
    "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "mode=1777", "size=64m"]},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
]


def seccomp(capabilities):
    """The profile in the runtime's form, for a container with these capabilities: Docker leaves out rules that are for others."""
    profile = json.loads(PROFILE.read_text())

    def holds(rule):
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        named = lambda words: {f"CAP_{name}" for name in capabilities} & set(words)
        return (
            "amd64" in includes.get("arches", ["amd64"])
            and "amd64" not in excludes.get("arches", [])
            and len(named(includes.get("caps", []))) == len(includes.get("caps", []))
            and not named(excludes.get("caps", []))
        )

    rules = [{key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)} for rule in profile["syscalls"] if holds(rule)]
    architectures = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    return {"defaultAction": profile["defaultAction"], "architectures": architectures, "syscalls": rules}


class Image:
    """A file system for containers: this machine's, with uroce installed. Gone with the script (enter_private_netns)."""

    def __init__(self, lab):
        self.lab = lab
        self.directory = lab.directory / "image"
        self.root = self.directory / "root"
        self.containers = 0
        for name in ("upper", "work", "root"):
            (self.directory / name).mkdir(parents=True)
        layers = f"lowerdir=/,upperdir={self.directory}/upper,workdir={self.directory}/work"
        self.call("mount", "-t", "overlay", "-o", layers, "overlay", self.root)
        install = ["cmake", "--install", lab.build, "--prefix", "/usr", "--component", "Unspecified"]
        self.call(*install, env={**os.environ, "DESTDIR": str(self.root)})
        (self.root / "run/uroced").mkdir(parents=True, exist_ok=True)

    def close(self):
        self.call("umount", self.root)

    @staticmethod
    def call(*command, **how):
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how)
        check(done.returncode == 0, f"{command}\n{done.stdout}")

    def start(self, host, command, user=0, drop=(), add=(), confined=True, mounts=(), env=None):
        """`docker run` of the command in the network namespace of a host. drop, add: as --cap-drop (or ("ALL",)) and --cap-add;
        confined=False: --security-opt seccomp=unconfined; mounts: {host's directory: container's}, with ":ro" behind
        it as for --volume."""
        capabilities = () if "ALL" in drop else [name for name in DEFAULT_CAPABILITIES if name not in drop]
        capabilities = [*capabilities, *add]
        # Docker gives an ordinary user no more than the bounding set.
        sets = ("bounding",) if user else ("bounding", "effective", "permitted")
        linux = {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        }
        if confined:
            linux["seccomp"] = seccomp(capabilities)
        self.containers += 1
        bundle = self.directory / str(self.containers)
        bundle.mkdir()
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": user},
                "args": list(map(str, command)),
                "cwd": "/",
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *(f"{k}={v}" for k, v in (env or {}).items())],
                "capabilities": {kind: [f"CAP_{name}" for name in capabilities] for kind in sets},
                "noNewPrivileges": bool(user),
            },
            "root": {"path": str(self.root)},
            "hostname": f"container-{self.containers}",
            "mounts": MOUNTS + [{"destination": inside.removesuffix(":ro"), "source": str(outside), "type": "bind",
                                 "options": ["rbind", "ro"] if inside.endswith(":ro") else ["rbind"]}
                                for outside, inside in dict(mounts).items()],
            "linux": linux,
        }
        (bundle / "config.json").write_text(json.dumps(config))
        # Whatever ends crun ends all in the process namespace around it. It looks for cgroups, and uses none.
        run = f"mount -t cgroup2 none /sys/fs/cgroup; exec crun --cgroup-manager=disabled --root {bundle}/state run --bundle {bundle} {self.lab.a.name}-{self.containers}"
        around = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "sh", "-c", run]
        return host.start(around, uroce=False)
