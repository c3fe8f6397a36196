// Admission control: limits on requests and bytes in flight. Standard types only, so that it runs under
// ThreadSanitizer.
//
// A holder is a connection or, with a policy, an identity. One that holds little is admitted even if others hold all:
// beyond each limit there is a reserve of a sixteenth, for holders that then hold at most a quarter of the reserve. A
// group of holders, such as the connections of one address, gets no more of it than it leaves to others: the first
// group can have half, the next one a quarter, and so on. One holder alone can hold everything up to the limits, and up
// to limits of its own. Holders with a weight that were there in the same second share the limits by weight: once half
// of a limit is taken, each can hold its part, or one request that is larger.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace posenc::server {

class Admission;

struct Holder {
  std::string name;  // empty: unknown, without a share of the reserve
  int64_t max_requests = std::numeric_limits<int64_t>::max();
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  double weight = 0;  // 0: takes no part in the shares by weight
};

// Sums over the calls of one holder.
struct HolderShare {
  int64_t charges = 0;  // Charge objects that refer to this
  int64_t bytes = 0;
  int64_t requests = 0;
  int64_t max_bytes = 0;  // of the holder's last request
  double weight = 0;
  std::chrono::steady_clock::time_point last_seen;
};
using HolderShares = std::map<std::string, HolderShare>;

// Bytes and requests of the reserve that a group holds.
struct GroupShare {
  int64_t bytes = 0;
  int64_t requests = 0;
};
using GroupShares = std::map<std::string, GroupShare>;

// RAII charge against the limits of an Admission. Shares its ownership: an answer's last slice may be released long
// after the server is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept = default;
  Charge& operator=(Charge&& other) noexcept;
  ~Charge() { Return(); }

  // Returns the charge before destruction. Does nothing the second time.
  void Return();
  // Returns some of the charged bytes.
  void ReturnBytes(int64_t bytes);
  // True if others with a weight were there when it was charged.
  bool is_shared() const { return is_shared_; }

 private:
  friend class Admission;
  std::shared_ptr<Admission> admission_;       // null if nothing is charged
  HolderShares::value_type* share_ = nullptr;  // valid while something is charged; null: of no holder
  int64_t bytes_ = 0;
  int64_t requests_ = 0;
  bool is_shared_ = false;
  // Part of this charge that is of the reserve. group_ is null if there is none, or the holder has no group.
  GroupShares::value_type* group_ = nullptr;
  GroupShare reserved_;
};

class Admission : public std::enable_shared_from_this<Admission> {
 public:
  enum class Verdict {
    kAdmitted,
    kOverloaded,  // a limit is reached; retry later
    kOverQuota,   // a limit of the holder's own is reached; retry later
    kDraining,    // the server is shutting down
    kTooLarge,    // can never be admitted
  };

  struct Counters {
    int64_t started = 0;  // calls that have come
    int64_t failed = 0;   // answered with an error that is not a refusal
    int64_t refused = 0;
    int64_t in_flight_requests = 0;
    int64_t in_flight_bytes = 0;
  };

  // Returns the group of a holder, by its name; empty: it has none.
  using GroupOf = std::string (*)(const std::string& holder);

  static std::shared_ptr<Admission> Create(int64_t max_requests, int64_t max_bytes, GroupOf group_of = nullptr);

  // Counts a call that has come.
  void CountStart();
  // Charges a request and its bytes. *request and *bytes must be empty; they are set only on kAdmitted.
  Verdict AdmitRequest(int64_t size, Charge* request, Charge* bytes, const Holder& holder = {});
  // Charges bytes for `request`, which already holds `held` bytes; null: a request of no holder. *bytes may hold
  // some of them: it grows.
  Verdict AdmitBytes(int64_t size, int64_t held, Charge* bytes, const Charge* request = nullptr);

  void CountFailure();
  void CountRefusal();
  Counters counters() const;

  // Refuses requests from now on.
  void Drain();

 private:
  friend class Charge;
  Admission(int64_t max_requests, int64_t max_bytes, GroupOf group_of)
      : max_requests_(max_requests), max_bytes_(max_bytes), group_of_(group_of) {}
  using Share = HolderShares::value_type;
  // These require mutex_.
  static bool IsInQuota(int64_t size, const Share& share);
  // The part of the limits that the holder of `share` may hold: 1 if no other has a weight.
  double PartOf(Share* share);
  // Whether the holder can hold so many bytes more: within its part, or while half of the limits is free.
  bool IsInPart(int64_t size, const Share& share, double part) const;
  bool BytesFit(int64_t size, const Share* share) const;
  bool RequestFits(const Share* share) const;
  // Bytes, or requests, that an admission would take of the reserve.
  int64_t BytesOfReserve(int64_t size) const;
  int64_t RequestsOfReserve() const;
  GroupShare HeldByGroup(const Share& share) const;
  Charge Take(int64_t bytes, int64_t requests, Share* share);
  // Adds to *charge what it takes of the reserve.
  void Reserve(int64_t bytes, int64_t requests, const Share* share, Charge* charge);
  void Release(int64_t bytes, int64_t requests, Charge* charge);
  void Add(int64_t bytes, int64_t requests, Share* share);
  // These lock it.
  void Return(Charge* charge);
  void ReturnBytes(int64_t bytes, Charge* charge);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  const GroupOf group_of_;
  mutable std::mutex mutex_;
  Counters counters_;
  HolderShares shares_;  // of holders that hold anything, or have a weight and were there in the last second
  GroupShares groups_;   // that have anything of the reserve
  bool draining_ = false;
};

}  // namespace posenc::server
