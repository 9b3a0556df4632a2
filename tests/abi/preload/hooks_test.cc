// SPDX-License-Identifier: BSD-2-Clause
// Every function of glibc through which a program can name a file finds the view. That it is our function, and not the
// file's being there by other means, is asked of the loader first.
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <functional>
#include <glob.h>
#include <gmock/gmock.h>
#include <linux/netlink.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

#include "view_paths.h"

namespace {

const std::string kState = kPort + "/state";
const char* const kActive = "4: ACTIVE\n";

// The function as the program's calls of it find it.
template <class Function>
Function* function(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  Dl_info info{};
  EXPECT_TRUE(found != nullptr && dladdr(found, &info) != 0 && std::strstr(info.dli_fname, "liburoce_files") != nullptr)
      << name << " is not replaced";
  return reinterpret_cast<Function*>(found);
}

std::string text_of(int descriptor) {
  char text[256] = {};
  if (descriptor < 0) return std::string("no descriptor: ") + std::strerror(errno);
  const ssize_t length = read(descriptor, text, sizeof(text));
  close(descriptor);
  return {text, length < 0 ? 0 : static_cast<size_t>(length)};
}

std::string text_of(FILE* stream) {
  if (stream == nullptr) return std::string("no stream: ") + std::strerror(errno);
  char text[256] = {};
  const size_t length = fread(text, 1, sizeof(text), stream);
  fclose(stream);
  return {text, length};
}

TEST(Hooks, OpenFindsFiles) {
  const char* path = kState.c_str();
  for (const char* name : {"open", "open64", "__open", "__open64"}) {
    EXPECT_EQ(text_of(function<int(const char*, int, ...)>(name)(path, O_RDONLY)), kActive) << name;
  }
  for (const char* name : {"__open_2", "__open64_2"}) {
    EXPECT_EQ(text_of(function<int(const char*, int)>(name)(path, O_RDONLY)), kActive) << name;
  }
  for (const char* name : {"openat", "openat64"}) {
    EXPECT_EQ(text_of(function<int(int, const char*, int, ...)>(name)(AT_FDCWD, path, O_RDONLY)), kActive) << name;
  }
  for (const char* name : {"__openat_2", "__openat64_2"}) {
    EXPECT_EQ(text_of(function<int(int, const char*, int)>(name)(-1, path, O_RDONLY)), kActive) << name;
  }
}

TEST(Hooks, StreamsFindFiles) {
  const char* path = kState.c_str();
  for (const char* name : {"fopen", "fopen64"}) {
    EXPECT_EQ(text_of(function<FILE*(const char*, const char*)>(name)(path, "re")), kActive) << name;
  }
  for (const char* name : {"freopen", "freopen64"}) {
    FILE* stream = fopen("/dev/null", "r");
    EXPECT_EQ(text_of(function<FILE*(const char*, const char*, FILE*)>(name)(path, "r", stream)), kActive) << name;
  }
}

TEST(Hooks, NothingCanBeWrittenOrMade) {
  const std::string existing = kState, new_file = kDevice + "/new";
  for (const std::string& path : {existing, new_file}) {
    for (const char* name : {"creat", "creat64"}) {
      errno = 0;
      EXPECT_EQ(function<int(const char*, mode_t)>(name)(path.c_str(), 0600), -1) << path;
      EXPECT_EQ(errno, EACCES);
    }
    errno = 0;
    EXPECT_EQ(open(path.c_str(), O_RDWR | O_CREAT, 0600), -1);
    EXPECT_EQ(errno, EACCES);
    errno = 0;
    EXPECT_EQ(fopen(path.c_str(), "a"), nullptr);
    EXPECT_EQ(errno, EACCES);
    errno = 0;
    EXPECT_EQ(freopen(path.c_str(), "w", fopen("/dev/null", "r")), nullptr);
    EXPECT_EQ(errno, EACCES);
  }
  errno = 0;
  EXPECT_EQ(open(existing.c_str(), O_WRONLY), -1);
  EXPECT_EQ(errno, EACCES);
  errno = 0;
  EXPECT_EQ(open(new_file.c_str(), O_WRONLY), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Hooks, TheRdmaCmFileIsADeviceThatPolls) {
  const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  struct stat status {};
  struct stat64 status64 {};
  struct statx statusx {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(status.st_rdev, makedev(10, 122));
  ASSERT_EQ(fstat64(fd, &status64), 0);
  EXPECT_TRUE(S_ISCHR(status64.st_mode));
  ASSERT_EQ(fstatat(fd, "", &status, AT_EMPTY_PATH), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  ASSERT_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &statusx), 0);
  EXPECT_TRUE(S_ISCHR(statusx.stx_mode));
  EXPECT_EQ(statusx.stx_rdev_major, 10u);
  ASSERT_EQ(function<int(int, int, struct stat*)>("__fxstat")(1, fd, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  pollfd state{fd, POLLIN, 0};
  EXPECT_EQ(poll(&state, 1, 0), 0);
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(fstat(fd, &status), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Hooks, CommandsAreAnsweredAndAllElseIsWritten) {
  const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  int pipes[2] = {-1, -1};
  ASSERT_EQ(pipe(pipes), 0);
  // CREATE_ID of RDMA_PS_TCP.
  uint32_t id = 77;
  struct {
    uint32_t command = 0;
    uint16_t in = 24, out = 4;
    uint64_t uid = 1, response;
    uint16_t port_space = 0x0106;
    uint8_t rest[6] = {};
  } create;
  static_assert(sizeof(create) == 32);
  create.response = reinterpret_cast<uintptr_t>(&id);
  errno = 0;
  EXPECT_EQ(write(fd, &create, sizeof(create)), 32);
  EXPECT_EQ(id, 0u);
  EXPECT_EQ(write(pipes[1], &create, sizeof(create)), 32) << "the same bytes to anything else";
  char bytes[32];
  EXPECT_EQ(read(pipes[0], bytes, sizeof(bytes)), 32);
  create.command = 4;  // RESOLVE_ROUTE, of another id
  create.uid = 4711;
  EXPECT_EQ(write(fd, &create, sizeof(create)), -1);
  EXPECT_EQ(errno, ENOENT);
  errno = EDOM;
  EXPECT_EQ(write(pipes[1], "x", 1), 1);
  EXPECT_EQ(errno, EDOM);
  const void* const volatile nowhere = reinterpret_cast<void*>(8);
  EXPECT_EQ(write(pipes[1], nowhere, 32), -1);
  EXPECT_EQ(errno, EFAULT);
  for (const int open_one : {fd, pipes[0], pipes[1]}) EXPECT_EQ(close(open_one), 0);
}

TEST(Hooks, TheKernelIsNotAskedForRdma) {
  EXPECT_EQ(socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  const int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  EXPECT_GE(fd, 0);
  close(fd);
}

TEST(Hooks, TheNamesOfRdmaCm) {
  for (const auto& [path, text] : {std::pair<const char*, const char*>{"/sys/class/misc/rdma_cm/abi_version", "4\n"},
                                   {"/sys/class/misc/rdma_cm/dev", "10:122\n"}}) {
    FILE* const file = fopen(path, "r");
    ASSERT_NE(file, nullptr) << path;
    char line[16] = {};
    EXPECT_STREQ(fgets(line, sizeof(line), file), text);
    fclose(file);
  }
  EXPECT_EQ(access("/dev/infiniband/rdma_cm", R_OK | W_OK), 0);
}

TEST(Hooks, ModesReachTheKernel) {
  const std::string path = "/tmp/uroce-files-mode-test-" + std::to_string(getpid());
  const mode_t mask = umask(0);
  close(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0612));
  umask(mask);
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0612u);
  unlink(path.c_str());
}

TEST(Hooks, StatTellsFilesFromDevices) {
  struct stat status {};
  const auto kind = [&](int result) { return result == 0 ? status.st_mode & S_IFMT : 0u; };
  for (const auto& [path, expected] :
       {std::pair<std::string, mode_t>{kState, S_IFREG}, {kDevice, S_IFDIR}, {node(), S_IFCHR}}) {
    for (const char* name : {"stat", "stat64", "lstat", "lstat64"}) {
      status = {};
      EXPECT_EQ(kind(function<int(const char*, void*)>(name)(path.c_str(), &status)), expected) << name << path;
    }
    for (const char* name : {"fstatat", "fstatat64"}) {
      status = {};
      const auto call = function<int(int, const char*, void*, int)>(name);
      EXPECT_EQ(kind(call(-1, path.c_str(), &status, AT_SYMLINK_NOFOLLOW)), expected) << name << path;
    }
    for (const char* name : {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}) {
      status = {};
      EXPECT_EQ(kind(function<int(int, const char*, void*)>(name)(1, path.c_str(), &status)), expected) << name << path;
    }
    for (const char* name : {"__fxstatat", "__fxstatat64"}) {
      status = {};
      const auto call = function<int(int, int, const char*, void*, int)>(name);
      EXPECT_EQ(kind(call(1, AT_FDCWD, path.c_str(), &status, 0)), expected) << name << path;
    }
    struct statx extended {};
    const auto call = function<int(int, const char*, int, unsigned, void*)>("statx");
    EXPECT_EQ(call(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &extended), 0) << path;
    EXPECT_EQ(extended.stx_mode & S_IFMT, expected) << path;
  }
}

TEST(Hooks, AccessToDevicesAndFiles) {
  for (const char* name : {"access", "euidaccess", "eaccess"}) {
    const auto call = function<int(const char*, int)>(name);
    EXPECT_EQ(call(node().c_str(), R_OK | W_OK), 0) << name;
    EXPECT_EQ(call(kState.c_str(), R_OK), 0) << name;
    EXPECT_EQ(call((kDevice + "/nothing").c_str(), F_OK), -1) << name;
    EXPECT_EQ(errno, ENOENT);
  }
  const auto at = function<int(int, const char*, int, int)>("faccessat");
  EXPECT_EQ(at(AT_FDCWD, node().c_str(), R_OK | W_OK, 0), 0);
  EXPECT_EQ(at(-1, (node() + "/x").c_str(), F_OK, 0), -1);
  EXPECT_EQ(errno, ENOTDIR);
  EXPECT_EQ(text_of(open(node().c_str(), O_RDWR | O_NOFOLLOW)), "");
}

TEST(Hooks, FileSystemsAndAttributesCanBeAskedFor) {
  const char* path = kState.c_str();
  char buffer[256];
  struct statfs system {};
  struct statvfs system_v {};
  for (const char* name : {"statfs", "statfs64"}) EXPECT_EQ(function<int(const char*, void*)>(name)(path, &system), 0);
  for (const char* name : {"statvfs", "statvfs64"})
    EXPECT_EQ(function<int(const char*, void*)>(name)(path, &system_v), 0);
  for (const char* name : {"getxattr", "lgetxattr"}) {
    const auto call = function<ssize_t(const char*, const char*, void*, size_t)>(name);
    EXPECT_EQ(call(path, "user.none", buffer, sizeof(buffer)), -1);
    EXPECT_NE(errno, ENOENT) << name;
  }
  for (const char* name : {"listxattr", "llistxattr"}) {
    EXPECT_GE(function<ssize_t(const char*, char*, size_t)>(name)(path, buffer, sizeof(buffer)), 0) << name;
  }
}

TEST(Hooks, LinksAreRead) {
  const std::string path = "/sys/class/infiniband_verbs/" + uverbs() + "/device";
  const std::string target = "../../infiniband/uroce_rdma0/device";
  char text[PATH_MAX];
  const auto seen = [&](ssize_t length) { return std::string(text, length < 0 ? 0 : static_cast<size_t>(length)); };
  EXPECT_EQ(seen(function<ssize_t(const char*, char*, size_t)>("readlink")(path.c_str(), text, sizeof(text))), target);
  EXPECT_EQ(seen(function<ssize_t(const char*, char*, size_t, size_t)>("__readlink_chk")(path.c_str(), text,
                                                                                         sizeof(text), sizeof(text))),
            target);
  EXPECT_EQ(
      seen(function<ssize_t(int, const char*, char*, size_t)>("readlinkat")(-1, path.c_str(), text, sizeof(text))),
      target);
  EXPECT_EQ(seen(function<ssize_t(int, const char*, char*, size_t, size_t)>("__readlinkat_chk")(
                -1, path.c_str(), text, sizeof(text), sizeof(text))),
            target);
  EXPECT_EQ(readlink(node().c_str(), text, sizeof(text)), -1);
  EXPECT_EQ(errno, EINVAL) << "a device is no link";
}

TEST(Hooks, RealPathsAreThoseOfTheView) {
  const std::string link = "/sys/class/infiniband_verbs/" + uverbs() + "/device";
  for (const auto& [path, expected] :
       {std::pair{link, kDevice + "/device"}, {node(), node()}, {kDevice + "/./ports/../", kDevice}}) {
    char text[PATH_MAX];
    EXPECT_STREQ(function<char*(const char*, char*)>("realpath")(path.c_str(), text), expected.c_str());
    EXPECT_STREQ(function<char*(const char*, char*, size_t)>("__realpath_chk")(path.c_str(), text, sizeof(text)),
                 expected.c_str());
    for (char* made :
         {realpath(path.c_str(), nullptr), function<char*(const char*)>("canonicalize_file_name")(path.c_str())}) {
      EXPECT_STREQ(made, expected.c_str());
      std::free(made);
    }
  }
  EXPECT_EQ(realpath((kDevice + "/nothing").c_str(), nullptr), nullptr);
  EXPECT_EQ(errno, ENOENT);
  char text[PATH_MAX];
  EXPECT_STREQ(realpath("/proc/self/../self/fd/../../../dev/null", text), "/dev/null") << "others are as ever";
}

TEST(Hooks, TheCurrentDirectory) {
  char text[PATH_MAX];
  ASSERT_EQ(function<int(const char*)>("chdir")(kPort.c_str()), 0);
  EXPECT_STREQ(function<char*(char*, size_t)>("getcwd")(text, sizeof(text)), kPort.c_str());
  EXPECT_STREQ(function<char*(char*, size_t, size_t)>("__getcwd_chk")(text, sizeof(text), sizeof(text)), kPort.c_str());
  char* made = function<char*()>("get_current_dir_name")();
  EXPECT_STREQ(made, kPort.c_str());
  std::free(made);
  EXPECT_EQ(text_of(open("state", O_RDONLY)), kActive);
  ASSERT_EQ(chdir("/sys/class"), 0);
  EXPECT_EQ(text_of(open("infiniband/uroce_rdma0/ports/1/state", O_RDONLY)), kActive);
  ASSERT_EQ(chdir("/"), 0);
  EXPECT_EQ(text_of(open("sys/class/infiniband/uroce_rdma0/ports/1/state", O_RDONLY)), kActive);
}

// hwloc opens everything so.
TEST(Hooks, RelativeToADescriptor) {
  const int root = open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(text_of(openat(root, "sys/class/infiniband/uroce_rdma0/ports/1/state", O_RDONLY)), kActive);
  close(root);
  const int directory = open(kPort.c_str(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(text_of(openat(directory, "state", O_RDONLY)), kActive);
  EXPECT_EQ(openat(directory, "infiniband", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
  close(directory);
}

TEST(Hooks, DirectoriesAreListed) {
  std::set<std::string> names;
  DIR* directory = function<DIR*(const char*)>("opendir")("/sys/class/infiniband");
  ASSERT_NE(directory, nullptr);
  while (const dirent* entry = readdir(directory)) names.insert(entry->d_name);
  closedir(directory);
  EXPECT_THAT(names, testing::UnorderedElementsAre(".", "..", "uroce_rdma0"));

  using Scan = int(const char*, dirent***, int (*)(const dirent*), int (*)(const dirent**, const dirent**));
  using ScanAt = int(int, const char*, dirent***, int (*)(const dirent*), int (*)(const dirent**, const dirent**));
  std::vector<std::function<int(dirent***)>> calls;
  for (const char* name : {"scandir", "scandir64"}) {
    calls.push_back([=](dirent*** list) { return function<Scan>(name)("/dev/infiniband", list, nullptr, nullptr); });
  }
  for (const char* name : {"scandirat", "scandirat64"}) {
    calls.push_back(
        [=](dirent*** list) { return function<ScanAt>(name)(-1, "/dev/infiniband", list, nullptr, nullptr); });
  }
  for (const auto& call : calls) {
    dirent** list = nullptr;
    const int count = call(&list);
    names.clear();
    for (int i = 0; i < count; ++i) {
      names.insert(list[i]->d_name);
      std::free(list[i]);
    }
    std::free(list);
    EXPECT_THAT(names, testing::UnorderedElementsAre(".", "..", "rdma_cm", uverbs()));
  }
}

std::set<std::string> visited;

TEST(Hooks, TreesAreWalked) {
  const auto visit = [](const char* path, const struct stat*, int) { return visited.insert(path), 0; };
  const auto visit_further = [](const char* path, const struct stat*, int, FTW* at) {
    EXPECT_STREQ(path + at->base, std::strrchr(path, '/') + 1);
    return visited.insert(path), 0;
  };
  using Visit = int(const char*, const struct stat*, int);
  using VisitFurther = int(const char*, const struct stat*, int, FTW*);
  for (const char* name : {"ftw", "ftw64"}) {
    visited.clear();
    EXPECT_EQ(function<int(const char*, Visit*, int)>(name)(kPort.c_str(), visit, 8), 0);
    EXPECT_THAT(visited, testing::IsSupersetOf({kPort, kState, kPort + "/gids/0"})) << name;
  }
  for (const char* name : {"nftw", "nftw64"}) {
    visited.clear();
    EXPECT_EQ(function<int(const char*, VisitFurther*, int, int)>(name)(kPort.c_str(), visit_further, 8, FTW_PHYS), 0);
    EXPECT_THAT(visited, testing::IsSupersetOf({kPort, kState, kPort + "/gids/0"})) << name;
  }
  for (const std::string& path : visited) EXPECT_EQ(path.compare(0, kPort.size(), kPort), 0) << path;
}

TEST(Hooks, PatternsAreMatched) {
  using Glob = int(const char*, int, int (*)(const char*, int), glob_t*);
  for (const char* name : {"glob", "glob64"}) {
    glob_t found{};
    found.gl_offs = 2;
    EXPECT_EQ(function<Glob>(name)("/sys/class/infiniband/*/ports/1/state", GLOB_DOOFFS, nullptr, &found), 0);
    EXPECT_EQ(function<Glob>(name)("/dev/infiniband/uverbs*", GLOB_DOOFFS | GLOB_APPEND, nullptr, &found), 0);
    EXPECT_EQ(function<Glob>(name)("/dev/nul?", GLOB_DOOFFS | GLOB_APPEND, nullptr, &found), 0);
    ASSERT_EQ(found.gl_pathc, 3u);
    EXPECT_EQ(found.gl_pathv[0], nullptr);
    EXPECT_EQ(found.gl_pathv[2], kState);
    EXPECT_EQ(found.gl_pathv[3], node());
    EXPECT_STREQ(found.gl_pathv[4], "/dev/null");
    globfree(&found);
  }
}

TEST(Hooks, ErrnoStaysWhenAllIsWell) {
  errno = 4711;
  const int descriptor = open(kState.c_str(), O_RDONLY);
  EXPECT_EQ(errno, 4711);
  EXPECT_EQ(text_of(descriptor), kActive);
  struct stat status {};
  EXPECT_EQ(stat("/dev/null", &status), 0);
  EXPECT_EQ(errno, 4711);
}

TEST(Hooks, OutAgainIsTheRealSysfs) {
  struct stat there {
  }, here{};
  ASSERT_EQ(stat("/sys/class/net", &there), 0);
  ASSERT_EQ(stat("/sys/class/infiniband/../net", &here), 0);
  EXPECT_EQ(here.st_ino, there.st_ino);
}

}  // namespace
