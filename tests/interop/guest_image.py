# SPDX-License-Identifier: BSD-2-Clause
"""The guest of the interoperability tests: Debian's kernel, and an initramfs with the distribution's RDMA programs, the
rxe driver and provider, and uroce. Made in the build directory; made again when something in it has changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from lab import LabError, Unavailable

HERE = Path(__file__).resolve().parent
KERNEL_PACKAGE = "linux-image-amd64"

# Loaded at start, with what they depend on. crc32: what rxe computes ICRCs with.
MODULES = ("virtio_pci", "virtio_console", "virtio_net", "crc32_generic", "crc32-pclmul", "ib_uverbs", "rdma_ucm",
           "rdma_rxe", "8021q", "veth", "dummy", "macvlan")
# Loaded by the cases that need them: consumers of RDMA in the kernel, and what computes their checksums.
MODULES_TO_HAVE = ("crc32c_generic", "target_core_mod", "iscsi_target_mod", "ib_isert", "brd", "nvmet", "nvmet-rdma",
                   "ipip", "ip_gre", "ip6_gre", "wireguard", "vrf")

PROGRAMS = (
    "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat",
    "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong",
    "ibv_devices", "ibv_devinfo", "ip", "rdma", "ethtool", "wg",
    "rping", "ucmatose", "udaddy", "mckey", "cmtime", "rstream", "riostream", "udpong", "rcopy", "rdma_server", "rdma_client",
)  # fmt: skip
PROVIDER = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"
PROVIDER_CONFIGURATION = "/etc/libibverbs.d/rxe.driver"

# Of the build: file there, file in the guest.
OURS = (
    ("bin/uroce", "/opt/uroce/bin/uroce"),
    ("bin/uroced", "/opt/uroce/bin/uroced"),
    ("lib/uroce/liburoce.so", "/opt/uroce/lib/uroce/liburoce.so"),
    ("lib/uroce/liburoce_files.so", "/opt/uroce/lib/uroce/liburoce_files.so"),
    ("lib/uroce/uroce_af_xdp.so", "/opt/uroce/lib/uroce/uroce_af_xdp.so"),
    ("bin/rc_transfer", "/usr/bin/rc_transfer"),
    ("bin/rc_errors", "/usr/bin/rc_errors"),
    ("bin/memory_pattern", "/usr/bin/memory_pattern"),
    ("bin/cm_exchange", "/usr/bin/cm_exchange"),
    ("bin/verbs_client_test", "/usr/bin/verbs_client_test"),
)

MISSING_TOOL = "{} is not installed; tools/deps --interop installs it"


def _run(*command, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise LabError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _find(program):
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise Unavailable(MISSING_TOOL.format(program))
    return Path(found)


def _shared_libraries(file):
    """Paths of the libraries that the dynamic linker loads for the file, itself included."""
    paths = [word for line in _run("ldd", file).splitlines() for word in line.split() if word.startswith("/")]
    return [Path(path) for path in paths if Path(path).is_file()]


class GuestImage:
    """`kernel` and `initramfs`: what QEMU starts."""

    def __init__(self, build):
        self.build = Path(build).resolve()
        self.directory = self.build / "interop"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.initramfs = self.directory / "initramfs.cpio"
        with open(self.directory / "lock", "w") as lock:  # two tests may need the guest at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._unpack_kernel()
            self._make_initramfs()

    # --- kernel --------------------------------------------------------------------------------------------------------

    def _unpack_kernel(self):
        """The newest kernel of the distribution, downloaded once for each version."""
        try:
            package = self._find_kernel()
            if self.kernel.exists():
                return
            self._download(package)
        except LabError:  # no package lists, or older ones than the archive's
            try:
                _run("apt-get", "update")
                package = self._find_kernel()
                if self.kernel.exists():
                    return
                self._download(package)
            except LabError as error:
                raise Unavailable(f"the guest's kernel cannot be downloaded: {error}") from error
        partial = self.directory / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        for archive in self.directory.glob(f"{package}_*.deb"):
            _run("dpkg-deb", "--extract", archive, partial)
            archive.unlink()
        _run(_find("depmod"), "-b", partial, self.release)
        partial.rename(self.tree)

    def _find_kernel(self):
        """The name of the package; sets `release`, `tree` and `kernel`."""
        depends = _run("apt-cache", "depends", KERNEL_PACKAGE)
        package = next((line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line), None)
        if package is None:
            raise LabError(f"no package {KERNEL_PACKAGE}: is this Debian 12?")
        self.release = package.removeprefix("linux-image-")
        self.tree = self.directory / package
        self.kernel = self.tree / "boot" / f"vmlinuz-{self.release}"
        return package

    def _download(self, package):
        # As root, not as apt's own user, which may not write here.
        _run("apt-get", "--option", "APT::Sandbox::User=root", "download", package, cwd=self.directory)

    def _module_files(self):
        files = []
        for module in MODULES + MODULES_TO_HAVE:
            shown = _run(_find("modprobe"), "-d", self.tree, "-S", self.release, "--show-depends", module)
            files += [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod")]
        return files

    # --- initramfs -----------------------------------------------------------------------------------------------------

    def _contents(self):
        """{path in the guest: file here}."""
        contents = {"/init": HERE / "guest/init", "/bin/busybox": _find("busybox")}
        for file in self._module_files():
            contents["/" + str(file.relative_to(self.tree))] = file
        modules = self.tree / "lib/modules" / self.release
        for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            contents[f"/lib/modules/{self.release}/{name}"] = modules / name
        dynamic = {f"/usr/bin/{name}": _find(name) for name in PROGRAMS}
        dynamic["/bin/sh"] = _find("dash")  # busybox's would take its own ip
        dynamic[PROVIDER] = Path(PROVIDER)
        contents[PROVIDER_CONFIGURATION] = Path(PROVIDER_CONFIGURATION)
        for source, target in OURS:
            dynamic[target] = self.build / source
        for file in dynamic.values():
            if not file.exists():
                raise LabError(f"{file} does not exist; run tools/deps and tools/build")
            # By the names that the linker asks for, wherever they are links to.
            contents |= {str(library): library.resolve() for library in _shared_libraries(file)}
        return contents | {target: file.resolve() for target, file in dynamic.items()}

    def _make_initramfs(self):
        contents = self._contents()
        stamp = hashlib.sha256(repr(sorted((target, str(file), file.stat().st_size, file.stat().st_mtime_ns)
                                           for target, file in contents.items())).encode())
        stamp.update(Path(__file__).read_bytes())
        mark = self.directory / "initramfs.stamp"
        if self.initramfs.exists() and mark.exists() and mark.read_text() == stamp.hexdigest():
            return
        stage = self.directory / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        for name in ("proc", "sys", "dev", "tmp", "run", "sbin", "usr/sbin", "var/run"):
            (stage / name).mkdir(parents=True)
        for target, file in contents.items():
            place = stage / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
        (stage / "etc/modules").write_text("".join(f"{module}\n" for module in MODULES))
        (stage / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        (stage / "etc/services").write_text("")
        for applet in _run(_find("busybox"), "--list").split():
            link = stage / "bin" / applet
            if not link.exists() and applet not in ("ip", "busybox"):
                link.symlink_to("busybox")
        _run(_find("depmod"), "-b", stage, self.release)
        with open(self.initramfs, "wb") as archive:
            names = subprocess.run(["find", ".", "-print0"], cwd=stage, capture_output=True, check=True).stdout
            subprocess.run([_find("cpio"), "--null", "--create", "--format=newc", "--owner=0:0", "--quiet"], cwd=stage,
                           input=names, stdout=archive, check=True)
        shutil.rmtree(stage)
        mark.write_text(stamp.hexdigest())
