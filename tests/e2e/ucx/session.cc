// SPDX-License-Identifier: BSD-2-Clause
#include "session.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>

namespace exchange {

using Clock = std::chrono::steady_clock;

Session::Session(const Options& given, OutOfBand& out_of_band)
    : options(given), out_of_band_(out_of_band), plant_countdown_(given.seed % 11 + 2) {}

// After close() nothing is left to do; before, it is an error that ends the program.
Session::~Session() = default;

void Session::create_worker() {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features =
      UCP_FEATURE_TAG | UCP_FEATURE_STREAM | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;
  if (options.sleep) params.features |= UCP_FEATURE_WAKEUP;
  params.name = "ucx_exchange";
  params.estimated_num_eps = 1;
  ucp_config_t* config = nullptr;
  require("configuration", ucp_config_read(nullptr, nullptr, &config));
  require("context", ucp_init(&params, config, &context));
  ucp_config_release(config);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  require("worker", ucp_worker_create(context, &worker_params, &worker));
  if (options.sleep) require("worker's file descriptor", ucp_worker_get_efd(worker, &event_fd_));
}

void Session::open() {
  create_worker();
  if (!options.by_address) {
    connect_to_worker();
  } else if (options.server) {
    listen();
    barrier();
    accept();
  } else {
    barrier();
    connect_to_address();
  }
  flush_endpoint();
  barrier();
}

// What UCX needs to know of the other one is told out of band.
void Session::connect_to_worker() {
  ucp_address_t* own = nullptr;
  size_t length = 0;
  require("worker address", ucp_worker_get_address(worker, &own, &length));
  const auto* bytes = reinterpret_cast<const uint8_t*>(own);
  const Blob peer = exchange(Blob(bytes, bytes + length));
  ucp_worker_release_address(worker, own);

  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.data());
  require("endpoint", ucp_ep_create(worker, &params, &endpoint));
}

void Session::close() {
  for (unsigned turn : {1u, 0u}) {
    barrier();
    if (turn != side()) continue;
    close_endpoint();
  }
  barrier();
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  listener_ = nullptr;
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  worker = nullptr;
  context = nullptr;
}

bool Session::plant_now(Part part) {
  return options.plant == static_cast<char>(part) && plant_countdown_ > 0 && --plant_countdown_ == 0;
}

std::vector<uint8_t> Session::outgoing(uint64_t name, size_t size) {
  std::vector<uint8_t> data = content(options.seed, name, size);
  totals.sent += hash(name, data.data(), size);
  if (size > 0 && plant_now(static_cast<Part>(name >> 56))) {
    data[options.seed % size] ^= static_cast<uint8_t>(1u << options.seed % 8);
  }
  return data;
}

void Session::verify(const char* where, uint64_t name, const uint8_t* data, size_t size) {
  const std::vector<uint8_t> expected = content(options.seed, name, size);
  if (!std::equal(expected.begin(), expected.end(), data)) {
    size_t at = 0, wrong = 0;
    for (size_t i = size; i-- > 0;) {
      if (data[i] != expected[i]) at = i, ++wrong;
    }
    char why[160];
    std::snprintf(why, sizeof(why), "byte %zu of %zu is %02x instead of %02x, %zu bytes are wrong (data %#" PRIx64 ")",
                  at, size, data[at], expected[at], wrong, name);
    fail(where, why);
  }
  ++totals.operations;
  totals.bytes += size;
  totals.received += hash(name, data, size);
}

void Session::fail(const char* where, const std::string& why) const {
  std::fprintf(stderr, "ucx_exchange: %s: %s: %s\n", options.server ? "server" : "client", where, why.c_str());
  std::exit(1);
}

void Session::require(const char* where, ucs_status_t status) {
  if (status != UCS_OK) fail(where, ucs_status_string(status));
}

void Session::sleep_a_while(const char* where) {
  const ucs_status_t status = ucp_worker_arm(worker);
  if (status == UCS_ERR_BUSY) return;  // something has come in between
  require("arm", status);
  pollfd fds[] = {{event_fd_, POLLIN, 0}, {out_of_band_.fd(), POLLIN, 0}};
  // What has been told out of band already would not let anybody sleep who does not wait for it.
  const nfds_t count = out_of_band_.state() == OutOfBand::State::kNothing ? 2 : 1;
  if (::poll(fds, count, 1000) == 0 && ucp_worker_progress(worker) != 0) {
    std::fprintf(stderr, "ucx_exchange: %s: nobody has woken us though there was something to do\n", where);
  }
}

void Session::progress_until(const char* where, const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + std::chrono::seconds(options.timeout);
  for (unsigned turn = 1; !condition(); ++turn) {
    const bool idle = worker == nullptr || ucp_worker_progress(worker) == 0;
    const bool slept = idle && worker != nullptr && options.sleep;
    if (slept && !condition()) sleep_a_while(where);
    if (!slept && turn % 4096 != 0) continue;
    if (out_of_band_.state() == OutOfBand::State::kEnded && !condition()) fail(where, "the other one has ended");
    if (Clock::now() > deadline) fail(where, "no end within " + std::to_string(options.timeout) + " s");
  }
}

void Session::wait(const char* where, ucs_status_ptr_t request) {
  if (request == nullptr) return;
  if (UCS_PTR_IS_ERR(request)) fail(where, ucs_status_string(UCS_PTR_STATUS(request)));
  ucs_status_t status = UCS_INPROGRESS;
  progress_until(where, [&] { return (status = ucp_request_check_status(request)) != UCS_INPROGRESS; });
  ucp_request_free(request);
  require(where, status);
}

void Session::wait_all(const char* where, std::vector<ucs_status_ptr_t>& requests) {
  for (ucs_status_ptr_t request : requests) wait(where, request);
  requests.clear();
}

Blob Session::exchange(const Blob& blob) {
  Blob answer;
  if (!out_of_band_.send(blob)) fail("out of band", std::strerror(errno));
  progress_until("out of band", [this] { return out_of_band_.state() == OutOfBand::State::kReadable; });
  if (!out_of_band_.receive(answer)) fail("out of band", errno ? std::strerror(errno) : "the other one has ended");
  return answer;
}

void Session::barrier() {
  exchange({});
}

void Session::flush_endpoint() {
  const ucp_request_param_t param{};
  wait("flush of the endpoint", ucp_ep_flush_nbx(endpoint, &param));
}

void Session::flush_worker() {
  const ucp_request_param_t param{};
  wait("flush of the worker", ucp_worker_flush_nbx(worker, &param));
}

}  // namespace exchange
