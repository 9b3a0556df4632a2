#include "tests/simulator/judge.h"
namespace uroce::simulator {
Judge::~Judge() = default;
void Judge::declare(const Host&, const SimQp&, const wire::IpAddress&, wire::Qpn, const transport::QpAttributes&) {}
void Judge::on_frame(const Host&, Direction, const Frame&, Time) {}
const std::string& Judge::finish() {
  (void)events_;
  return error_;
}
bool Judge::write_capture(const std::string&) const {
  return false;
}
}  // namespace uroce::simulator
