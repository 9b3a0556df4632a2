#include "engine/net/netdev_genl.h"

#include <functional>
#include <linux/genetlink.h>
#include <memory>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

namespace uroce::net {
namespace {

// From <linux/netdev.h> of Linux 6.3.
constexpr uint8_t kCommandDevGet = 1;
constexpr int kAttributeIfindex = 1;
constexpr int kAttributeXdpFeatures = 3;

using GenlSocket = std::unique_ptr<nl_sock, decltype(&nl_socket_free)>;
using GenlMessage = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;

GenlMessage make_request(uint16_t family, uint8_t command) {
  GenlMessage message(nlmsg_alloc_simple(family, NLM_F_REQUEST), nlmsg_free);
  if (message) {
    const genlmsghdr header{.cmd = command, .version = 1, .reserved = 0};
    nlmsg_append(message.get(), const_cast<genlmsghdr*>(&header), sizeof(header), NLMSG_ALIGNTO);
  }
  return message;
}

// Sends the request and returns the attribute of that number in the answer, turned into a number by `read`.
template <class Value>
std::optional<Value> ask(nl_sock* socket, nl_msg* request, int attribute, Value (*read)(const nlattr*)) {
  struct Answer {
    int attribute;
    Value (*read)(const nlattr*);
    std::optional<Value> value;
  } answer{attribute, read, std::nullopt};
  nl_socket_modify_cb(
      socket, NL_CB_VALID, NL_CB_CUSTOM,
      [](nl_msg* message, void* context) -> int {
        auto* out = static_cast<Answer*>(context);
        const nlattr* found = nlmsg_find_attr(nlmsg_hdr(message), sizeof(genlmsghdr), out->attribute);
        if (found != nullptr) out->value = out->read(found);
        return NL_STOP;
      },
      &answer);
  if (nl_send_auto(socket, request) < 0 || nl_recvmsgs_default(socket) < 0) return std::nullopt;
  return answer.value;
}

std::optional<uint16_t> resolve_family(nl_sock* socket, const char* name) {
  const GenlMessage request = make_request(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
  if (!request || nla_put_string(request.get(), CTRL_ATTR_FAMILY_NAME, name) != 0) return std::nullopt;
  return ask<uint16_t>(socket, request.get(), CTRL_ATTR_FAMILY_ID, nla_get_u16);
}

}  // namespace

std::optional<uint64_t> query_xdp_features(int ifindex) {
  const GenlSocket socket(nl_socket_alloc(), nl_socket_free);
  if (!socket || nl_connect(socket.get(), NETLINK_GENERIC) != 0) return std::nullopt;
  nl_socket_disable_auto_ack(socket.get());
  const std::optional<uint16_t> family = resolve_family(socket.get(), "netdev");
  if (!family) return std::nullopt;
  const GenlMessage request = make_request(*family, kCommandDevGet);
  if (!request || nla_put_u32(request.get(), kAttributeIfindex, static_cast<uint32_t>(ifindex)) != 0) {
    return std::nullopt;
  }
  return ask<uint64_t>(socket.get(), request.get(), kAttributeXdpFeatures, nla_get_u64);
}

}  // namespace uroce::net
