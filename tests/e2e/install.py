#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""What `cmake --install` makes: it takes nothing over, and works from where it lies. Options: see suite.py.

The hosts run uroce from the tree that is installed here, not from the build directory.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from suite import Case, check, main
from lab import Lab, wait_until
from perftest import PINGPONG

LDCONFIG = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
NAMES = ("libibverbs.so", "libibverbs.so.1")


def install(build, directory, prefix):
    """`cmake --install` into the directory, as packages are made. Returns the prefix there."""
    command = ["cmake", "--install", build, "--prefix", prefix, "--component", "Unspecified"]
    done = subprocess.run(command, env={**os.environ, "DESTDIR": str(directory)}, capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return directory / prefix.lstrip("/")


class InstalledLab(Lab):
    """Two hosts with uroce installed, in /usr/local of a directory that stands for the root."""

    def __init__(self, build, mtu):
        self.source = Path(build).resolve()
        self.root = Path(tempfile.mkdtemp(prefix="install-", dir="/run/netns"))  # gone with the script
        self.root.chmod(0o755)
        super().__init__(install(self.source, self.root, "/usr/local"), mtu)
        self.private = self.build / "lib/uroce"

    def __exit__(self, *how):
        super().__exit__(*how)
        shutil.rmtree(self.root)


def answers_to(file):
    """The SONAME of a library; None for other files."""
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", file], capture_output=True, text=True).stdout
    found = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    return found and found[1]


def ldconfig(root):
    """Runs ldconfig on the directory as if it were the root, with the configuration of this machine; what it found."""
    etc = root / "etc"
    if not etc.exists():
        etc.mkdir()
        shutil.copy2("/etc/ld.so.conf", etc)
        shutil.copytree("/etc/ld.so.conf.d", etc / "ld.so.conf.d")
    for arguments in ([], ["-p"]):
        done = subprocess.run([LDCONFIG, "-r", root, *arguments], capture_output=True, text=True)
        check(done.returncode == 0, f"ldconfig {arguments}: {done.stderr}")
    return done.stdout


def takes_nothing_over(lab, prefix):
    with tempfile.TemporaryDirectory(dir=lab.directory) as directory:
        root = Path(directory)
        private = install(lab.source, root, prefix) / "lib/uroce"
        check({file.name for file in private.iterdir()} >= {*NAMES, "liburoce.so", "liburoce_files.so", "uroce_af_xdp.so"}, f"{list(private.iterdir())}")
        found = ldconfig(root)
        check("libibverbs" not in found, f"the loader of the whole machine would take it:\n{found}")
        for file in root.rglob("*"):
            if file.is_file() and private not in file.parents:
                check(not any(str(name).startswith("libibverbs") for name in (file.name, answers_to(file))), f"{file} is a libibverbs")
        # That ldconfig would have found it, had it been put where it looks.
        (root / "etc/ld.so.conf.d/uroce.conf").write_text(f"{prefix}/lib/uroce\n")
        found = ldconfig(root)
        check(f"libibverbs.so.1 (libc6,x86-64) => {prefix}/lib/uroce/" in found, f"ldconfig sees nothing at all?\n{found}")


def installed_file(prefix, name):
    check((prefix / name).is_file(), f"{name} is not installed: {sorted(str(file) for file in prefix.rglob('*'))}")
    return prefix / name


def units(lab, prefix):
    """What systemd says of the units where they are installed, and that they start the program that is."""
    with tempfile.TemporaryDirectory(dir=lab.directory) as directory:
        tree = install(lab.source, Path(directory), prefix)
        service = installed_file(tree, "lib/systemd/system/uroced.service").read_text()
        installed_file(tree, "lib/systemd/system/uroced.socket")
        installed_file(tree, "bin/uroced")
        check(f"\nExecStart={prefix}/bin/uroced\n" in service, service)
        command = ["systemd-analyze", "verify", "--root", directory, "--man=no", "--recursive-errors=no", "uroced.socket", "uroced.service"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        check(done.returncode == 0 and not done.stderr, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        # That it looks at them.
        installed_file(tree, "bin/uroced").unlink()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        check(done.returncode != 0 and "uroced is not executable" in done.stderr, f"{done.returncode} {done.stderr}")


def manuals(lab):
    """Of all programs, and they can be shown without a warning."""
    for name in ("man1/uroce.1", "man8/uroced.8"):
        page = installed_file(lab.build, f"share/man/{name}")
        shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=False, env={**os.environ, "MANWIDTH": "80"})
        check(shown.returncode == 0 and not shown.stderr, f"{name}: {shown.returncode} {shown.stderr}")
        check("SYNOPSIS" in shown.stdout and "SEE ALSO" in shown.stdout, shown.stdout)


def needed(library):
    """The libraries that the loader maps with it."""
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", library], capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))


def brings_little(lab):
    """What gets into every program that runs with uroce: glibc, the unwinder, libnl. No libstdc++, of which the program may have
    another version; libbpf, libxdp and what they need only with AF_XDP and DPDK."""
    allowed = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libnl-3.so.200"}
    for name in ("liburoce.so", "liburoce_files.so"):
        surplus = needed(lab.private / name) - allowed
        check(not surplus, f"{name} needs {surplus}; a new function of libbpf or libxdp belongs into engine/io/xdp_library/calls.h")
    for name in ("liburoce.so", "liburoce_files.so"):  # Ubuntu 22.04 has 2.35, RHEL 9 2.34
        symbols = subprocess.run(["readelf", "--version-info", "--wide", lab.private / name], capture_output=True, text=True, check=True).stdout
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+)", symbols)}
        check((2, 34) >= max(versions), f"{name} needs glibc {max(versions)}")
    check({"libbpf.so.1", "libxdp.so.1"} <= needed(lab.private / "uroce_af_xdp.so"), "the module is not linked with them")
    for name in ("liburoce.so", "liburoce_files.so"):
        check("libgcc_s.so.1" in needed(lab.private / name), f"{name} has an unwinder of its own, with which pthread_cancel() aborts")

    server = lab.a.start([PINGPONG, "-d", lab.a.device, "-g", "0"], io="udp")
    server.wait_listening(18515)  # it has a QP by now
    udp = libraries_of(server)
    check({"liburoce.so", "liburoce_files.so", "libnl-3.so.200"} <= udp, f"{udp}")
    surplus = {name for name in udp if re.match(r"libbpf|libxdp|libelf|libz\b|uroce_af_xdp", name)}
    check(not surplus, f"mapped with UDP sockets: {surplus}")
    server.kill()
    server = lab.a.start([PINGPONG, "-d", lab.a.device, "-g", "0"], io="af_xdp")
    server.wait_listening(18515)
    check({"libbpf.so.1", "libxdp.so.1", "uroce_af_xdp.so"} <= libraries_of(server), f"{libraries_of(server)}")

    cat = lab.a.run(["cat", "/proc/self/maps"], io="udp")  # a program without C++
    check("liburoce.so" in cat.stdout and "libstdc++" not in cat.stdout, cat.stdout)


def libraries_of(program):
    """Names of the libraries that a running program has mapped, as the loader asks for them."""
    maps = Path(f"/proc/{program.pid}/maps").read_text()
    return {re.sub(r"(\.so\.\d+)\..*", r"\1", Path(path).name) for path in re.findall(r"/\S+\.so\S*", maps)}


@contextlib.contextmanager
def absent(file):
    elsewhere = file.with_name("elsewhere")
    file.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(file)


def without_module(lab):
    """AF_XDP without the half that it needs: an error that names what is missing. UDP sockets need neither. (That `auto`
    falls back from AF_XDP to them: open_io_test; on a veth it does not try.)"""
    module = lab.private / "uroce_af_xdp.so"
    with absent(module):
        program = lab.a.run([PINGPONG, "-d", lab.a.device, "-g", "0"], io="af_xdp")
        said = [line for line in program.output.splitlines() if line.startswith("uroce: ")]
        check(program.process.returncode > 0 and len(said) == 1, program.output)
        check(re.search(rf"libbpf and libxdp cannot be loaded: {re.escape(str(module))}: .*libxdp1.*UROCE_IO=udp", said[0]), said[0])
        server = lab.a.start([PINGPONG, "-d", lab.a.device, "-g", "0"])
        server.wait_listening(18515)
        check(re.search(r"^uroce: roce0: udp ", server.output, re.MULTILINE), server.output)
        check(lab.a.xdp_program() is None, f"an XDP program is attached: {lab.a.xdp_program()}")


def got_ours(lab, program):
    """loads_verbs ended well, with our library and our device."""
    check(program.process.returncode == 0, program.output)
    library = re.search(r"^library (.*)$", program.stdout, re.MULTILINE)
    check(library and "/lib/uroce/" in library[1], program.output)
    check(re.search(rf"^device {lab.a.device}$", program.stdout, re.MULTILINE), program.output)


def system_library():
    """Path of the distribution's libibverbs.so.1."""
    cache = subprocess.run([LDCONFIG, "-p"], capture_output=True, text=True).stdout
    return re.search(r"libibverbs\.so\.1 .* => (\S+)", cache)[1]


def dlopen(lab, client, options=()):
    for name in (*NAMES, system_library()):
        for user in (False, True):
            got_ours(lab, lab.a.run([lab.source / "bin" / client, name], io="udp", options=options, user=user))


def dlopen_without_files(lab):
    """Without liburoce_files.so, which replaces dlopen(): what LD_LIBRARY_PATH does alone."""
    for name in NAMES:
        got_ours(lab, lab.a.run([lab.source / "bin/loads_verbs", name], io="udp", options=["--no-files"]))


def drop_in(lab):
    """Without `uroce run`: the private directory in LD_LIBRARY_PATH, with what the user has there behind it."""
    copy = lab.uroce_for(True).parents[1] / "lib/uroce"
    for user in (False, True):
        env = {"LD_LIBRARY_PATH": f"{copy}:/nonexistent", "UROCE_IO": "udp"}
        for command in ([lab.source / "bin/loads_verbs", NAMES[0]], [lab.source / "bin/loads_verbs", NAMES[1]]):
            got_ours(lab, lab.a.run(command, uroce=False, user=user, env=env))
        program = lab.a.run(["ibv_devices"], uroce=False, user=user, env=env)
        check(program.process.returncode == 0 and lab.a.device in program.stdout, program.output)


def drop_in_with_af_xdp(lab):
    """The module is found also where the loader knows liburoce.so by a link elsewhere, or by a relative path."""
    links = lab.directory / "links"
    links.mkdir()
    (links / "libibverbs.so.1").symlink_to(lab.private / "libibverbs.so.1")
    for directory in (links, os.path.relpath(lab.private)):
        env = {"LD_LIBRARY_PATH": str(directory), "UROCE_IO": "af_xdp"}
        server = lab.a.start([PINGPONG, "-d", lab.a.device, "-g", "0"], uroce=False, env=env)
        server.wait_listening(18515)
        check("uroce_af_xdp.so" in libraries_of(server), f"{libraries_of(server)}\n{server.output}")
        server.kill()


def traffic(lab, io):
    server = lab.a.start([PINGPONG, "-d", lab.a.device, "-g", "0"], io=io)
    server.wait_listening(18515)
    client = lab.b.run([PINGPONG, "-d", lab.b.device, "-g", "0", lab.a.ipv4], io=io)
    check(client.process.returncode == 0, client.output + server.output)
    wait_until(lambda: not server.running(), 10, "the server ends")
    check(server.process.returncode == 0, server.output)


def doctor(lab):
    """It finds the libraries of its own tree."""
    program = lab.a.run([lab.build / "bin/uroce", "doctor"], uroce=False)
    for name in ("liburoce.so", "liburoce_files.so"):
        check(f"{lab.private}/{name}" in program.output, program.output)
    for name, status, problem in (
        ("liburoce.so", "fail", f"there is no liburoce.so in {lab.private}"),
        ("liburoce_files.so", "warn", "liburoce_files.so is missing"),
        ("uroce_af_xdp.so", "warn", "uroce_af_xdp.so is missing"),
    ):
        with absent(lab.private / name):
            program = lab.a.run([lab.build / "bin/uroce", "doctor"], uroce=False)
            check(re.search(rf"{status}.*{re.escape(problem)}", program.output), f"without {name}:\n{program.output}")


CASES = [
    Case("takes-nothing-over-usr-local", lambda lab: takes_nothing_over(lab, "/usr/local")),
    Case("takes-nothing-over-usr", lambda lab: takes_nothing_over(lab, "/usr")),
    Case("units-usr-local", lambda lab: units(lab, "/usr/local")),
    Case("units-usr", lambda lab: units(lab, "/usr")),
    Case("manuals", manuals),
    Case("dlopen", lambda lab: dlopen(lab, "loads_verbs")),
    Case("dlopen-with-rpath", lambda lab: dlopen(lab, "loads_verbs_by_rpath")),
    Case("dlopen-without-files", dlopen_without_files),
    Case("drop-in", drop_in),
    Case("brings-little", brings_little),
    Case("without-module", without_module),
    Case("drop-in-af_xdp", drop_in_with_af_xdp),
    Case("traffic-udp", lambda lab: traffic(lab, "udp")),
    Case("traffic-af_xdp", lambda lab: traffic(lab, "af_xdp")),
    Case("doctor", doctor),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, CASES, lambda options, mtu: InstalledLab(options.build, mtu)))
