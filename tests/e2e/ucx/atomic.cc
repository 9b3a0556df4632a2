// SPDX-License-Identifier: BSD-2-Clause
// Atomic operations of 4 and 8 bytes on the other host's memory, both ways at once: one after the other, each result
// against a model; then many under way on one counter. At last the owner compares its memory with the model as well.
#include <algorithm>
#include <cstring>
#include <string>

#include "region.h"

namespace exchange {
namespace {

constexpr size_t kCounters = 16;
constexpr unsigned kOperations = 200;
constexpr unsigned kFlood = 64;

// Word: uint32_t, uint64_t.
template <typename Word>
class Atomics {
 public:
  Atomics(Session& session, const RemoteRegion& remote) : session_(session), remote_(remote), model_(kCounters) {}

  const std::vector<Word>& model() const { return model_; }

  void one_after_the_other() {
    Random random(session_.options.seed ^ sizeof(Word) << 8 ^ session_.side());
    constexpr ucp_atomic_op_t kAll[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP,
                                        UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR,   UCP_ATOMIC_OP_XOR};
    for (unsigned i = 0; i < kOperations; ++i) {
      const ucp_atomic_op_t operation = kAll[random.below(std::size(kAll))];
      const size_t at = random.below(kCounters);
      const bool swaps = operation == UCP_ATOMIC_OP_SWAP || operation == UCP_ATOMIC_OP_CSWAP;
      const bool fetch = swaps || random.below(2) == 0;  // without a reply there is nothing to swap with
      const auto value = static_cast<Word>(random.next());
      // Half of the compare and swap operations find what they expect.
      const bool hit = random.below(2) == 0;
      const Word compared = hit ? model_[at] : static_cast<Word>(model_[at] + 1);
      run(operation, at, value, compared, fetch);
    }
    session_.flush_endpoint();
  }

  // All on one counter, which nobody else touches: every value is seen once.
  void flood() {
    const Word before = model_[0], one = 1;
    std::vector<Word> seen(kFlood);
    std::vector<ucs_status_ptr_t> requests;
    for (Word& value : seen) {
      requests.push_back(post(UCP_ATOMIC_OP_ADD, 0, one, &value));
      requests.push_back(post(UCP_ATOMIC_OP_ADD, 1, one, nullptr));
    }
    session_.wait_all("atomic", requests);
    for (Word& value : seen) value = static_cast<Word>(value - before);
    std::sort(seen.begin(), seen.end());
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] != i) complain("fetch and add", "an addition was lost or done twice");
    }
    model_[0] = static_cast<Word>(model_[0] + kFlood);
    model_[1] = static_cast<Word>(model_[1] + kFlood);
    session_.totals.operations += 2 * kFlood;
    session_.flush_worker();
  }

 private:
  ucs_status_ptr_t post(ucp_atomic_op_t operation, size_t at, const Word& value, Word* reply) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_contig(sizeof(Word));
    if (reply != nullptr) {
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
      param.reply_buffer = reply;
    }
    return ucp_atomic_op_nbx(session_.endpoint, operation, &value, 1, remote_.address() + at * sizeof(Word),
                             remote_.key(), &param);
  }

  void run(ucp_atomic_op_t operation, size_t at, Word value, Word compared, bool fetch) {
    const Word before = model_[at];
    model_[at] = after(operation, before, value, compared);
    if (operation == UCP_ATOMIC_OP_ADD && session_.plant_now(Part::kAtomic)) value ^= 1;
    const bool compares = operation == UCP_ATOMIC_OP_CSWAP;
    // Compare and swap: what is compared is the operand; what is to be written lies where the old value goes.
    const Word operand = compares ? compared : value;
    Word reply = compares ? value : 0;
    session_.wait("atomic", post(operation, at, operand, fetch ? &reply : nullptr));
    if (fetch && reply != before) complain("fetched", "instead of " + std::to_string(before), reply);
    ++session_.totals.operations;
  }

  static Word after(ucp_atomic_op_t operation, Word before, Word value, Word compared) {
    switch (operation) {
      case UCP_ATOMIC_OP_ADD:
        return static_cast<Word>(before + value);
      case UCP_ATOMIC_OP_SWAP:
        return value;
      case UCP_ATOMIC_OP_CSWAP:
        return before == compared ? value : before;
      case UCP_ATOMIC_OP_AND:
        return before & value;
      case UCP_ATOMIC_OP_OR:
        return before | value;
      default:
        return before ^ value;
    }
  }

  [[noreturn]] void complain(const char* what, const std::string& why, Word value = 0) {
    session_.fail("atomic",
                  std::to_string(sizeof(Word)) + " bytes: " + what + " " + std::to_string(value) + ": " + why);
  }

  Session& session_;
  const RemoteRegion& remote_;
  std::vector<Word> model_;
};

template <typename Word>
void exchange_words(Session& session) {
  constexpr size_t kBytes = kCounters * sizeof(Word);
  const Region region(session, kBytes, true);
  std::memset(region.data(), 0, kBytes);
  const RemoteRegion remote(session, session.exchange(region.advertisement()));
  Atomics<Word> atomics(session, remote);
  atomics.one_after_the_other();
  atomics.flood();

  const auto* words = reinterpret_cast<const uint8_t*>(atomics.model().data());
  const Blob model(words, words + kBytes);
  session.totals.sent += hash(name_of(Part::kAtomic, 0, session.side(), kBytes, 0), model.data(), kBytes);
  const Blob expected = session.exchange(model);
  if (expected.size() != kBytes || std::memcmp(expected.data(), region.data(), kBytes) != 0) {
    session.fail("atomic", std::to_string(sizeof(Word)) + " bytes: the memory is not as the other one has left it");
  }
  session.totals.received += hash(name_of(Part::kAtomic, 0, session.peer_side(), kBytes, 0), region.data(), kBytes);
  session.totals.bytes += kBytes;
  session.barrier();
}

}  // namespace

void exchange_atomics(Session& session) {
  exchange_words<uint32_t>(session);
  exchange_words<uint64_t>(session);
}

}  // namespace exchange
