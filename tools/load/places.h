// Pool of shared-memory slots for the answers of calls in flight; tracks which slots can be verified.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace posenc::load {

class Places {
 public:
  // RAII handle of one slot: the destructor returns it to the pool.
  class Place {
   public:
    Place(Place&& other) noexcept : places_(std::exchange(other.places_, nullptr)), index_(other.index_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Place() {
      if (places_ != nullptr) places_->Give(index_);
    }

    size_t index() const { return index_; }
    // True if the slot can hold no other answer than its call's.
    bool verifiable() const { return places_->states_[index_].verified; }
    // Makes the slot unverifiable from now on: the server may still write the answer of an abandoned call to it.
    void Spoil() { places_->states_[index_].spoilt = true; }

   private:
    friend class Places;
    Place(Places* places, size_t index) : places_(places), index_(index) {}

    Places* places_;
    size_t index_;
  };

  // At most `most_verified` taken slots are verifiable at a time.
  Places(size_t count, size_t most_verified);

  // Takes a slot; verifiable if requested and possible. Absent if all are taken. Thread-safe.
  std::optional<Place> Take(bool verifiable);

 private:
  struct State {
    bool spoilt = false, verified = false;
  };
  void Give(size_t index);

  const size_t most_verified_;
  std::vector<State> states_;  // each is accessed only by its taker while taken

  std::mutex mutex_;
  size_t verified_ = 0;
  std::vector<size_t> clean_, spoilt_;  // free slots
};

}  // namespace posenc::load
