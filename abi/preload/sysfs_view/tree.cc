// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/tree.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace uroce::files {
namespace {

// Becomes a file or link of the tree by rename(); outside of what the view shows.
constexpr const char* kNewFile = "new";

// Owner of a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  operator int() const { return number_; }

 private:
  int number_;
};

int open_directory(int parent, const char* name) {
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const int copy = fcntl(directory, F_DUPFD_CLOEXEC, 3);
  DIR* stream = copy < 0 ? nullptr : fdopendir(copy);
  if (stream == nullptr) {
    if (copy >= 0) close(copy);
    return names;
  }
  while (const dirent* entry = readdir(stream)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  }
  closedir(stream);
  return names;
}

// Removes `name` in `parent` with all that is in it, as far as it belongs to `user`. Never follows a link.
void remove_tree(int parent, const char* name, uid_t user) {
  {
    const Descriptor directory(open_directory(parent, name));
    struct stat status {};
    if (directory < 0 || fstat(directory, &status) != 0 || status.st_uid != user) return;
    for (const std::string& entry : names_in(directory)) {
      if (unlinkat(directory, entry.c_str(), 0) != 0 && errno == EISDIR) remove_tree(directory, entry.c_str(), user);
    }
  }
  unlinkat(parent, name, AT_REMOVEDIR);
}

void sweep(const char* place, const TreeOwner& self) {
  const Descriptor directory(open_directory(AT_FDCWD, place));
  if (directory < 0) return;
  for (const std::string& name : names_in(directory)) {
    const auto owner = parse_tree_name(name);
    if (owner && is_abandoned(*owner, self)) remove_tree(directory, name.c_str(), self.user);
  }
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::unique_ptr<Tree> Tree::create() {
  const TreeOwner self = current_owner();
  for (const char* place : kTreePlaces) {
    sweep(place, self);
    std::string path = std::string(place) + "/" + tree_name_template(self);
    if (mkdtemp(path.data()) == nullptr) continue;
    std::unique_ptr<Tree> tree(new Tree(std::move(path), self));
    struct stat status {};
    if (lstat(tree->path_.c_str(), &status) != 0) continue;
    tree->device_ = status.st_dev;
    tree->inode_ = status.st_ino;
    return tree;
  }
  return nullptr;
}

bool Tree::usable() const {
  struct stat status {};
  return getpid() == owner_.process && geteuid() == owner_.user && lstat(path_.c_str(), &status) == 0 &&
         status.st_dev == device_ && status.st_ino == inode_;
}

bool Tree::put(int directory, const std::string& path, const Node& node) const {
  // As sysfs has them, whatever the umask. Nobody else gets through the directory above.
  if (node.kind == Node::Kind::kDirectory) {
    return mkdirat(directory, path.c_str(), 0700) == 0 && fchmodat(directory, path.c_str(), 0755, 0) == 0;
  }
  unlinkat(directory, kNewFile, 0);  // of an attempt that failed half-way
  if (node.kind == Node::Kind::kLink) {
    if (symlinkat(node.text.c_str(), directory, kNewFile) != 0) return false;
  } else {
    const Descriptor file(openat(directory, kNewFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));
    if (file < 0 || !write_all(file, node.text) || fchmod(file, 0444) != 0) return false;
  }
  return renameat(directory, kNewFile, directory, path.c_str()) == 0;
}

bool Tree::take_away(int directory, const std::string& path, const Node& node) const {
  return unlinkat(directory, path.c_str(), node.kind == Node::Kind::kDirectory ? AT_REMOVEDIR : 0) == 0;
}

bool Tree::update(Contents wanted) {
  if (wanted == contents_) return true;
  const Descriptor directory(open_directory(AT_FDCWD, path_.c_str()));
  if (directory < 0) return false;
  bool complete = true;
  // From the end: what is in a directory goes before it does. A file that becomes a directory goes as well.
  for (auto old = contents_.rbegin(); old != contents_.rend(); ++old) {
    const auto now = wanted.find(old->first);
    const bool stays = now != wanted.end() &&
                       (now->second.kind == Node::Kind::kDirectory) == (old->second.kind == Node::Kind::kDirectory);
    if (!stays) complete &= take_away(directory, old->first, old->second);
  }
  for (const auto& [path, node] : wanted) {
    const auto before = contents_.find(path);
    if (before != contents_.end() && before->second == node) continue;
    complete &= put(directory, path, node);
  }
  contents_ = std::move(wanted);
  return complete;
}

void Tree::remove() {
  const std::string::size_type slash = path_.rfind('/');
  const Descriptor place(open_directory(AT_FDCWD, path_.substr(0, slash).c_str()));
  if (place >= 0) remove_tree(place, path_.c_str() + slash + 1, owner_.user);
}

}  // namespace uroce::files
