// SPDX-License-Identifier: BSD-2-Clause
#include "abi/preload/sysfs_view/path_map.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace uroce::files {
namespace {

// infiniband_mad: our devices have no MAD files; a NIC's own must not show either.
constexpr std::string_view kInClass[] = {"infiniband", "infiniband_verbs", "infiniband_mad"};

using Components = std::vector<std::string_view>;

// Real directories on every Linux, so that ".." in them is what it looks like.
bool is_base(const Components& path) {
  switch (path.size()) {
    case 0:
      return true;
    case 1:
      return path[0] == "sys" || path[0] == "dev";
    case 2:
      return path[0] == "sys" && path[1] == "class";
    default:
      return path.size() == 3 && path[0] == "sys" && path[1] == "class" && path[2] == "misc";
  }
}

bool is_view(const Components& path) {
  if (path.size() == 2) return path[0] == "dev" && path[1] == "infiniband";
  if (path.size() == 4) return is_base({path[0], path[1], path[2]}) && path[3] == "rdma_cm";
  return path.size() == 3 && path[0] == "sys" && path[1] == "class" &&
         std::find(std::begin(kInClass), std::end(kInClass), path[2]) != std::end(kInClass);
}

std::string joined(const Components& components) {
  std::string path;
  for (const std::string_view component : components) {
    if (!path.empty()) path += '/';
    path += component;
  }
  return path;
}

Components components_of(Base base) {
  switch (base) {
    case Base::kSys:
      return {"sys"};
    case Base::kSysClass:
      return {"sys", "class"};
    case Base::kDev:
      return {"dev"};
    case Base::kRoot:
      break;
  }
  return {};
}

// Takes the slashes at the front of `path` away, and then the component behind them. Empty: there is none.
std::string_view take_component(std::string_view& path) {
  path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
  const std::string_view component = path.substr(0, path.find('/'));
  path.remove_prefix(component.size());
  return component;
}

}  // namespace

const char* base_path(Base base) {
  switch (base) {
    case Base::kSys:
      return "/sys";
    case Base::kSysClass:
      return "/sys/class";
    case Base::kDev:
      return "/dev";
    case Base::kRoot:
      break;
  }
  return "/";
}

std::optional<Place> find_place(std::string_view path, Base base) {
  Components at = path.substr(0, 1) == "/" ? Components{} : components_of(base);
  bool was_inside = false;
  for (std::string_view rest = path;;) {
    const std::string_view before = rest;
    const std::string_view component = take_component(rest);
    if (component.empty() || component == ".") {
      if (!component.empty()) continue;
      if (is_view(at)) return Place{true, joined(at)};
      return was_inside ? std::optional(Place{false, "/" + joined(at)}) : std::nullopt;
    }
    if (component == "..") {
      if (!at.empty()) at.pop_back();
      continue;
    }
    if (is_view(at)) return Place{true, joined(at) + "/" + std::string(component) + std::string(rest)};
    at.push_back(component);
    if (is_view(at)) {
      was_inside = true;
    } else if (!is_base(at)) {
      at.pop_back();
      if (!was_inside) return std::nullopt;
      return Place{false, "/" + joined(at) + std::string(at.empty() ? before.substr(1) : before)};
    }
  }
}

bool may_lead_inside(std::string_view relative_path) {
  std::string_view rest = relative_path;
  const std::string_view first = take_component(rest);
  for (const std::string_view base : {"sys", "class", "misc", "dev", ".", ".."}) {
    if (first == base) return true;
  }
  return std::find(std::begin(kInClass), std::end(kInClass), first) != std::end(kInClass);
}

}  // namespace uroce::files
